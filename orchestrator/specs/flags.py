"""The command line's flags for a spec: one for every key of `[job]` and `[resources]`, some more.

Plain records, so that a command can make its options without reading a spec.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from typing import Any, Literal

from orchestrator.specs import toml_tables
from orchestrator.toml import schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag, and the key of the spec that it sets."""

    #: without the leading dashes, "gpus-per-node"; the key's own for job and resources
    name: str
    #: further names
    aliases: tuple[str, ...] = ()
    #: dotted, "resources.gpus_per_node"
    key: str
    #: str, int or bool; bool also has a --no-NAME
    type: type[str] | type[int] | type[bool]
    #: the only words it takes; empty: any
    choices: tuple[str, ...] = ()
    #: may be given several times
    multiple: bool = False
    #: what the value is, for the help: NAME=VALUE
    metavar: str = ""
    help: str

    @property
    def parameter(self) -> str:
        """Return the name of the Python parameter, "resources_gpus_per_node"."""
        return self.key.replace(".", "_")


#: Help by dotted key; every key of job and resources has to be here.
_HELP = {
    "job.name": "Name of the job.",
    "job.partition": "Partition, or several with commas between.",
    "job.account": "Account to charge.",
    "job.qos": "Quality of service.",
    "job.reservation": "Reservation to run in.",
    "job.constraint": "Features that the nodes must have.",
    "job.time_limit": "Time limit as Slurm takes it: 30 (minutes), 1:30:00, 2-00.",
    "job.comment": "Comment, seen by everybody on the cluster.",
    "job.mail_type": "Events to mail about: END,FAIL.",
    "job.mail_user": "Who gets the mail.",
    "job.dependency": "Start after other jobs: afterok:123.",
    "job.requeue": "Whether Slurm may start the job again.",
    "job.signal_seconds": "Seconds before the time limit at which the job is told to stop.",
    "job.exclusive": "Share the nodes with no other job.",
    "job.nodelist": "Hosts that must be among the nodes.",
    "job.exclude": "Hosts to keep away from.",
    "job.output": "Log file; must hold %j. Default: in the run folder.",
    "job.error": "File for stderr; must hold %j. Default: with the output.",
    "job.chdir": "Folder the job starts in. Default: the present one.",
    "job.labels": "Label for own use, not seen by Slurm.",
    "resources.nodes": "Number of nodes.",
    "resources.ntasks": "Number of tasks in all.",
    "resources.ntasks_per_node": "Tasks on each node.",
    "resources.cpus_per_task": "CPUs of each task.",
    "resources.mem": "Memory of each node: 440G; a bare number is megabytes.",
    "resources.mem_per_cpu": "Memory for each CPU.",
    "resources.mem_per_gpu": "Memory for each GPU.",
    "resources.gpus_per_node": "GPUs on each node.",
    "resources.gpu_type": "Type of GPU: a100.",
    "resources.gres": "Generic resources as they stand: gpu:a100:4. Not with --gpus-per-node.",
    "resources.tmp": "Local disk of each node: 100G.",
    "environment.modules": "Environment module to load.",
    "environment.conda": "Conda environment: a name or a path.",
    "environment.venv": "Path of a Python virtual environment.",
    "environment.variables": "Variable to export into the job.",
    "environment.inherit": "Variable of this shell to pass on, also one that looks like a secret.",
    "container.runtime": "What runs the container.",
    "container.image": "Path of the container image.",
    "container.binds": "Folder to bind into the container.",
    "container.gpu": "How GPUs reach the container.",
    "launch.launcher": "What starts the program: torchrun, srun (one task a rank) or python.",
    "launch.rendezvous": "How torchrun's nodes meet.",
    "launch.nproc_per_node": "Ranks on each node: a number, or auto for one a GPU.",
    "launch.command": "Shell line to run as it stands, in place of a program after --.",
    "array.size": "Run it as a job array of so many tasks, which read SLURM_ARRAY_TASK_ID.",
    "array.max_running": "Of an array's tasks at most so many at a time.",
    "metrics.patterns": "Named pattern that finds numbers in the log.",
    "metrics.gpu_csv": "File with nvidia-smi's CSV of the job's GPUs.",
}
#: Names where the key's own says too little without its table, or is a plural.
_NAMES = {
    "job.labels": ("labels", "label"),
    "environment.modules": ("module",),
    "environment.variables": ("variable",),
    "container.runtime": ("container-runtime",),
    "container.binds": ("bind",),
    "container.gpu": ("container-gpu",),
    "array.size": ("array-size",),
    "metrics.patterns": ("pattern",),
}
_METAVARS = {
    "job.labels": "KEY=VALUE",
    "environment.variables": "NAME=VALUE",
    "environment.inherit": "NAME",
    "container.binds": "/HOST:/INSIDE[:ro]",
    "launch.nproc_per_node": "[N|auto]",
}


def _flag(key: str, hint: Any) -> Flag:
    kinds = [kind for kind in schema.kinds_of(hint) if kind is not types.NoneType]
    kind: Any = kinds[0] if len(kinds) == 1 else str
    is_words = typing.get_origin(kind) is Literal
    name, *aliases = _NAMES.get(key, (key.rpartition(".")[2].replace("_", "-"),))
    return Flag(
        name=name,
        aliases=tuple(aliases),
        key=key,
        type=kind if kind in (str, int, bool) else str,
        choices=typing.get_args(kind) if is_words else (),
        multiple=typing.get_origin(kind) in (tuple, collections.abc.Mapping),
        metavar=_METAVARS.get(key, ""),
        help=_HELP[key],
    )


def _flags() -> tuple[Flag, ...]:
    # One look at each table: resolving type hints is most of what this module takes to load.
    tables = {
        name: schema.fields_of(hint)
        for name, hint in schema.fields_of(toml_tables.FILE).items()
        if dataclasses.is_dataclass(hint)
    }
    keys = {key: key.partition(".") for key in _HELP}
    return tuple(_flag(key, tables[table][name]) for key, (table, _, name) in keys.items())


#: In the order of the help.
FLAGS: tuple[Flag, ...] = _flags()
