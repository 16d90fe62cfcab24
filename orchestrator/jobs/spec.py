"""The specification of a job, as its TOML file has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from orchestrator.jobs.retry import ArgumentValue, Retry

SbatchValue: TypeAlias = str | int | bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """`[resources]`: requested from Slurm."""

    nodes: int = 1
    ntasks: int | None = None
    #: --ntasks-per-node; default: set by the launcher (torchrun: 1)
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    #: --mem, per node, "440G"
    mem: str | None = None
    mem_per_cpu: str | None = None
    mem_per_gpu: str | None = None
    #: --gpus-per-node, or --gres if the profile says so
    gpus_per_node: int | None = None
    #: "a100"
    gpu_type: str | None = None
    #: --gres, instead of gpus_per_node
    gres: str | None = None
    #: --tmp, local disk per node
    tmp: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """`[environment]`: set up by the script before the program starts."""

    #: for `module load`, in this order
    modules: tuple[str, ...] = ()
    #: `module purge` first; default: if there are modules
    module_purge: bool | None = None
    #: name or path of a conda environment
    conda: str | None = None
    #: path of a Python virtual environment
    venv: str | None = None
    #: exported variables
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: file with NAME=VALUE lines that the job reads; its content is not in the script
    secrets_file: str | None = None
    #: shell lines, run last
    setup: str | None = None
    #: the submitting shell's variables: --export=ALL or --export=NONE
    export: Literal["all", "none"] = "all"
    #: variables that the job gets although their names look like secrets, or although they are not
    #: stored for a job that starts later
    inherit: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Container:
    """`[container]`: the image the program runs in."""

    runtime: Literal["none", "apptainer", "singularity", "pyxis"] = "none"
    #: path of the image (pyxis: also a registry reference)
    image: str | None = None
    #: "/host/path:/path/inside[:ro]"
    binds: tuple[str, ...] = ()
    #: how GPUs reach the container: --nv, --rocm
    gpu: Literal["nv", "rocm", "none"] = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """`[launch]`: how the program is started. Exactly one of module, script, program, command."""

    #: srun: one task per rank
    launcher: Literal["torchrun", "srun", "python"] = "torchrun"
    #: auto: standalone on one node, c10d on several
    rendezvous: Literal["auto", "standalone", "c10d", "static"] = "auto"
    #: ranks per node; auto: one per GPU of the node, otherwise 1
    nproc_per_node: int | Literal["auto"] = "auto"
    #: Python module, "trainers.train"
    module: str | None = None
    #: Python file
    script: str | None = None
    #: program and arguments as given after `--`; with a batch file its arguments
    program: tuple[str, ...] = ()
    #: absolute path of a batch script that is run unchanged; `sbatch` has the options on sbatch's
    #: command line
    batch_file: str | None = None
    #: a shell line
    command: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metrics:
    """`[metrics]`: how metrics are found in the log."""

    #: names of patterns; empty: all
    patterns: tuple[str, ...] = ()
    #: patterns of this job, by name, as TOML tables
    pattern: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: nvidia-smi's CSV files, "gpu_usage_%j.log", relative to the job's working folder; those of
    #: our trainer are found automatically
    gpu_csv: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alerts:
    """`[alerts]`: problems of a running job to report; default: the profile's."""

    #: no new line in log and metrics for so long; 0: never; default: 30
    stalled_minutes: int | None = None
    #: throughput below so many percent of its median; 0: never; default: 50
    slow_percent: int | None = None
    #: loss is NaN or infinite; default: true
    nan_loss: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """`[array]`: one script run as several tasks, numbered from 0. Not both tasks and size."""

    #: for each task its arguments, which override those in [args]
    tasks: tuple[Mapping[str, ArgumentValue], ...] | None = None
    #: number of tasks; the program reads SLURM_ARRAY_TASK_ID
    size: int | None = None
    #: tasks running at the same time, --array's %
    max_running: int | None = None

    @property
    def task_ids(self) -> range | None:
        """The numbers of the tasks; None: not an array."""
        if self.tasks is not None:
            return range(len(self.tasks))
        return None if self.size is None else range(self.size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job: the keys of `[job]`, and a record for each other table."""

    #: --job-name, followed by the token
    name: str
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    #: --time: "30", "1:30:00", "2-00"
    time_limit: str | None = None
    #: --comment; default: the token
    comment: str | None = None
    mail_type: str | None = None
    mail_user: str | None = None
    dependency: str | None = None
    #: --requeue or --no-requeue; default: the site's
    requeue: bool | None = None
    #: --signal: seconds before the time limit at which the job is asked to stop
    signal_seconds: int | None = None
    exclusive: bool = False
    nodelist: str | None = None
    exclude: str | None = None
    #: --output; must hold %j, and no %N, %n or %t
    output: str | None = None
    #: --error, same rule; default: the same file as output
    error: str | None = None
    #: --chdir; default: where submit was called
    chdir: str | None = None
    #: "team=vision"; not passed to Slurm
    labels: tuple[str, ...] = ()
    resources: Resources = Resources()
    environment: Environment = Environment()
    container: Container = Container()
    launch: Launch = Launch()
    #: arguments of the program: batch_size = 1024 is --batch-size 1024
    args: Mapping[str, ArgumentValue] = dataclasses.field(default_factory=dict)
    array: Array = Array()
    metrics: Metrics = Metrics()
    alerts: Alerts = Alerts()
    retry: Retry = dataclasses.field(default_factory=Retry)
    #: other sbatch options: --KEY=VALUE; true: a flag
    sbatch: Mapping[str, SbatchValue] = dataclasses.field(default_factory=dict)
