"""Which of sbatch's options may stand in `[sbatch]`. Source: man sbatch of Slurm 24.11."""

from __future__ import annotations

import re

#: Options that have a key of their own; two ways to say a thing would contradict each other.
OWN_KEYS = {
    "account": "job.account",
    "chdir": "job.chdir",
    "comment": "job.comment",
    "constraint": "job.constraint",
    "cpus-per-task": "resources.cpus_per_task",
    "dependency": "job.dependency",
    "error": "job.error",
    "exclude": "job.exclude",
    "exclusive": "job.exclusive",
    "export": "environment.export",
    "gpus-per-node": "resources.gpus_per_node",
    "gres": "resources.gres",
    "job-name": "job.name",
    "mail-type": "job.mail_type",
    "mail-user": "job.mail_user",
    "mem": "resources.mem",
    "mem-per-cpu": "resources.mem_per_cpu",
    "mem-per-gpu": "resources.mem_per_gpu",
    "no-requeue": "job.requeue",
    "nodelist": "job.nodelist",
    "nodes": "resources.nodes",
    "ntasks": "resources.ntasks",
    "ntasks-per-node": "resources.ntasks_per_node",
    "output": "job.output",
    "partition": "job.partition",
    "qos": "job.qos",
    "requeue": "job.requeue",
    "reservation": "job.reservation",
    "signal": "job.signal_seconds",
    "time": "job.time_limit",
    "tmp": "resources.tmp",
}
#: Options that would break how jobs are submitted or followed.
REFUSED = {
    "array": "use the table [array], with tasks or size, and max_running for what stands behind %",
    "cluster": "jobs go to the one cluster that sbatch talks to",
    "clusters": "jobs go to the one cluster that sbatch talks to",
    "help": "sbatch would submit nothing",
    "hetjob": "heterogeneous jobs are not supported",
    "ignore-pbs": "the script has no PBS lines",
    "open-mode": "logs are always appended to, so that a requeue keeps them",
    "packjob": "heterogeneous jobs are not supported",
    "parsable": "orchestrator reads the job ID itself",
    "quiet": "it changes sbatch's answer, which orchestrator reads",
    "test-only": "use submit --test-only",
    "usage": "sbatch would submit nothing",
    "verbose": "it changes sbatch's answer, which orchestrator reads",
    "version": "sbatch would submit nothing",
    "wait": "use submit --wait",
    "wrap": "orchestrator submits a script of its own: use launch.command",
}
_SHORT = {
    **{"A": "account", "C": "constraint", "D": "chdir", "G": "gpus", "H": "hold", "I": "immediate"},
    **{"J": "job-name", "L": "licenses", "M": "clusters", "N": "nodes", "O": "overcommit"},
    **{"Q": "quiet", "S": "core-spec", "V": "version", "W": "wait", "a": "array", "b": "begin"},
    **{"c": "cpus-per-task", "d": "dependency", "e": "error", "h": "help", "i": "input"},
    **{"k": "no-kill", "m": "distribution", "n": "ntasks", "o": "output", "p": "partition"},
    **{"q": "qos", "s": "oversubscribe", "t": "time", "v": "verbose", "w": "nodelist"},
    **{"x": "exclude"},
}
#: Options of their own although another begins like them.
_REAL = frozenset({"gpus"})
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*")


def long_name(key: str) -> str:
    """Return the long option that a short one, or the beginning of a long one, stands for.

    Of the options named here; any other is returned as it is.
    """
    if len(key) == 1:
        return _SHORT.get(key, key)
    if key in OWN_KEYS or key in REFUSED or key in _REAL:
        return key
    return next((known for known in (*OWN_KEYS, *REFUSED) if known.startswith(key)), key)


def objection(key: str) -> str:
    """Return why this key may not stand in `[sbatch]`; empty where it may."""
    name = _SHORT.get(key, key.replace("_", "-"))
    if not _KEY.fullmatch(name):
        return 'must be a long option of sbatch without its dashes, such as "hint"'
    if name in OWN_KEYS:
        return f"has a key of its own: use {OWN_KEYS[name]}"
    if name in REFUSED:
        return f"is refused: {REFUSED[name]}"
    if len(key) == 1:
        return f'write the long option: "{name}"' if name != key else "write the long option"
    if name != key:
        return f'sbatch writes it with dashes: "{name}"'
    # getopt_long takes any unambiguous beginning of a long option.
    whole = [known for known in (*OWN_KEYS, *REFUSED) if known.startswith(name)]
    if whole and name not in _REAL:
        cure = OWN_KEYS.get(whole[0])
        told = f"use {cure}" if cure else REFUSED[whole[0]]
        return f"is short for {whole[0]}: {told}"
    return ""
