"""The options of sbatch that `[sbatch]` accepts. Source: man sbatch of Slurm 24.11."""

from __future__ import annotations

import re

from orchestrator.specs import toml_tables
from orchestrator.toml import schema

_RENAMED = {"name": "job-name", "signal_seconds": "signal", "time_limit": "time"}
#: Options with a key of their own: set in two ways, they would contradict each other.
OWN_KEYS = {
    _RENAMED.get(key, key.replace("_", "-")): f"{table}.{key}"
    for table in ("job", "resources")
    for key in schema.fields_of(toml_tables.RECORDS[table])
    if key not in ("labels", "gpu_type")
}
OWN_KEYS |= {"export": "environment.export", "no-requeue": "job.requeue"}
#: Options that would break the submission or the tracking of jobs.
REFUSED = {
    "array": "use the table [array], with tasks or size, and max_running for the number after %",
    "cluster": "jobs are submitted only to the default cluster of sbatch",
    "clusters": "jobs are submitted only to the default cluster of sbatch",
    "environment": "the whole script would run in the container, without Slurm's commands: "
    'use container.runtime = "edf"',
    "help": "sbatch would submit nothing",
    "hetjob": "heterogeneous jobs are not supported",
    "ignore-pbs": "the script has no PBS lines",
    "open-mode": "logs are always opened in append mode, so that a requeue keeps them",
    "packjob": "heterogeneous jobs are not supported",
    "parsable": "orchestrator reads the job ID itself",
    "quiet": "it changes sbatch's output, which orchestrator reads",
    "test-only": "use submit --test-only",
    "usage": "sbatch would submit nothing",
    "verbose": "it changes sbatch's output, which orchestrator reads",
    "version": "sbatch would submit nothing",
    "wait": "use submit --wait",
    "wrap": "orchestrator submits its own script: use launch.command",
}
_SHORT = dict(
    pair.split("=")
    for pair in (
        "A=account C=constraint D=chdir G=gpus H=hold I=immediate J=job-name L=licenses M=clusters "
        "N=nodes O=overcommit Q=quiet S=core-spec V=version W=wait a=array b=begin "
        "c=cpus-per-task d=dependency e=error h=help i=input k=no-kill m=distribution n=ntasks "
        "o=output p=partition q=qos s=oversubscribe t=time v=verbose w=nodelist x=exclude"
    ).split()
)
_NAMED = (*sorted(OWN_KEYS), *REFUSED)
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*")


def long_name(key: str) -> str:
    """Return the long option that a short one, or an abbreviation of a long one, stands for.

    Only options named here can be abbreviated; any other key is returned unchanged.
    """
    if len(key) == 1:
        return _SHORT.get(key, key)
    # --gpus is an option of its own. getopt_long accepts any unambiguous abbreviation.
    if key in _NAMED or key == "gpus":
        return key
    return next((name for name in _NAMED if name.startswith(key)), key)


def key_error(key: str) -> str:
    """Return why this key is not allowed in `[sbatch]`; "" if it is."""
    name = _SHORT.get(key, key.replace("_", "-"))
    if not _KEY.fullmatch(name):
        return 'must be a long option of sbatch without its dashes, such as "hint"'
    if name in OWN_KEYS:
        return f"has its own key: use {OWN_KEYS[name]}"
    if name in REFUSED:
        return f"is not allowed: {REFUSED[name]}"
    if len(key) == 1:
        return f'write the long option: "{name}"' if name != key else "write the long option"
    if name != key:
        return f'sbatch writes it with dashes: "{name}"'
    whole = long_name(name)
    if whole == name:
        return ""
    advice = f"use {OWN_KEYS[whole]}" if whole in OWN_KEYS else REFUSED[whole]
    return f"is an abbreviation of {whole}: {advice}"
