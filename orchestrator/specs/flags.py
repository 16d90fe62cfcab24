"""The command line's flags for a spec: one for every key of `[job]` and `[resources]`, and more.

Plain records: the options are created without reading a spec.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import typing
from typing import Any

from orchestrator.specs import toml_tables
from orchestrator.toml import schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag, and the key of the spec that it sets."""

    #: without the leading dashes, "gpus-per-node"
    name: str
    aliases: tuple[str, ...]
    #: dotted, "resources.gpus_per_node"
    key: str
    #: bool also has --no-NAME
    type: type[str] | type[int] | type[bool]
    #: the only accepted words; empty: any
    choices: tuple[str, ...]
    #: may be given several times
    multiple: bool
    #: the value in the help: NAME=VALUE
    metavar: str
    help: str

    @property
    def parameter(self) -> str:
        """Return the name of the Python parameter, "resources_gpus_per_node"."""
        return self.key.replace(".", "_")


def _flag(key: str, help: str, *, names: tuple[str, ...] = (), metavar: str = "") -> Flag:
    """Return the flag of a key. names: in place of the key's own name."""
    hint = schema.bare(schema.hint_at(toml_tables.FILE, tuple(key.split("."))))
    kind: Any = str if len(schema.kinds_of(hint)) > 1 else hint
    name, *aliases = names or (key.rpartition(".")[2].replace("_", "-"),)
    return Flag(
        name=name,
        aliases=tuple(aliases),
        key=key,
        type=kind if kind in (str, int, bool) else str,
        choices=typing.get_args(kind) if schema.is_choice(kind) else (),
        multiple=typing.get_origin(kind) in (tuple, collections.abc.Mapping),
        metavar=metavar,
        help=help,
    )


#: In the order of the help.
FLAGS = (
    _flag("job.name", "Name of the job."),
    _flag("job.partition", "Partition, or several separated by commas."),
    _flag("job.account", "Account to charge."),
    _flag("job.qos", "Quality of service."),
    _flag("job.reservation", "Reservation to run in."),
    _flag("job.constraint", "Features that the nodes must have."),
    _flag("job.time_limit", "Time limit as Slurm accepts it: 30 (minutes), 1:30:00, 2-00."),
    _flag("job.comment", "Comment, visible to everybody on the cluster."),
    _flag("job.mail_type", "Events to send mail about: END,FAIL."),
    _flag("job.mail_user", "Receiver of the mail."),
    _flag("job.dependency", "Start after other jobs: afterok:123."),
    _flag("job.requeue", "Whether Slurm may requeue the job."),
    _flag("job.signal_seconds", "Seconds before the time limit at which the job gets a signal."),
    _flag("job.exclusive", "Do not share the nodes with other jobs."),
    _flag("job.nodelist", "Hosts that must be among the nodes."),
    _flag("job.exclude", "Hosts to exclude."),
    _flag("job.output", "Log file; must contain %j. Default: in the run folder."),
    _flag("job.error", "File for stderr; must contain %j. Default: the log file."),
    _flag("job.chdir", "Working directory of the job. Default: the current folder."),
    _flag(
        "job.labels",
        "Label of the job, not passed to Slurm.",
        names=("labels", "label"),
        metavar="KEY=VALUE",
    ),
    _flag("resources.nodes", "Number of nodes."),
    _flag("resources.ntasks", "Total number of tasks."),
    _flag("resources.ntasks_per_node", "Tasks per node."),
    _flag("resources.cpus_per_task", "CPUs per task."),
    _flag("resources.mem", "Memory per node: 440G; a number without unit is megabytes."),
    _flag("resources.mem_per_cpu", "Memory per CPU."),
    _flag("resources.mem_per_gpu", "Memory per GPU."),
    _flag("resources.gpus_per_node", "GPUs per node."),
    _flag("resources.gpu_type", "Type of GPU: a100."),
    _flag(
        "resources.gres",
        "Generic resources in Slurm's form: gpu:a100:4. Not with --gpus-per-node.",
    ),
    _flag("resources.tmp", "Local disk space per node: 100G."),
    _flag("environment.modules", "Environment module to load.", names=("module",)),
    _flag("environment.conda", "Conda environment: a name or a path."),
    _flag("environment.venv", "Path of a Python virtual environment."),
    _flag(
        "environment.variables",
        "Environment variable of the job.",
        names=("variable",),
        metavar="NAME=VALUE",
    ),
    _flag(
        "environment.inherit",
        "Variable of this shell to pass to the job, even if its name looks like a secret.",
        metavar="NAME",
    ),
    _flag("container.runtime", "Container runtime.", names=("container-runtime",)),
    _flag("container.image", "Path of the container image."),
    _flag(
        "container.binds",
        "Folder to bind into the container.",
        names=("bind",),
        metavar="/HOST:/INSIDE[:ro]",
    ),
    _flag("container.gpu", "GPU support in the container.", names=("container-gpu",)),
    _flag("launch.launcher", "Program launcher; srun starts one task per rank."),
    _flag("launch.rendezvous", "Rendezvous of torchrun's nodes."),
    _flag(
        "launch.nproc_per_node",
        "Ranks per node: a number, or auto for one per GPU.",
        metavar="[N|auto]",
    ),
    _flag("launch.command", "Shell line to run unchanged, instead of a program after --."),
    _flag(
        "array.size",
        "Run the job as an array of this many tasks, which read SLURM_ARRAY_TASK_ID.",
        names=("array-size",),
    ),
    _flag("array.max_running", "Maximum number of array tasks that run at the same time."),
    _flag("metrics.patterns", "Name of a pattern for numbers in the log.", names=("pattern",)),
    _flag("metrics.gpu_csv", "File with nvidia-smi's CSV of the job's GPUs."),
)
