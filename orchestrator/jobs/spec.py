"""The request: a job as a person describes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from orchestrator.jobs.arguments import ArgumentValue
from orchestrator.jobs.retry import Retry

SbatchValue: TypeAlias = str | int | bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """`[resources]`: what is asked of Slurm."""

    #: --nodes
    nodes: int = 1
    #: --ntasks
    ntasks: int | None = None
    #: --ntasks-per-node; left out, the launcher decides (torchrun: 1)
    ntasks_per_node: int | None = None
    #: --cpus-per-task
    cpus_per_task: int | None = None
    #: --mem, memory of a node, "440G"
    mem: str | None = None
    #: --mem-per-cpu
    mem_per_cpu: str | None = None
    #: --mem-per-gpu
    mem_per_gpu: str | None = None
    #: --gpus-per-node, or --gres where the profile says so
    gpus_per_node: int | None = None
    #: type of GPU, "a100"
    gpu_type: str | None = None
    #: --gres as it stands; instead of gpus_per_node
    gres: str | None = None
    #: --tmp, local disk of a node
    tmp: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """`[environment]`: what the script sets up before the program."""

    #: module load, in this order
    modules: tuple[str, ...] = ()
    #: module purge before them; left out: only when modules are named
    module_purge: bool | None = None
    #: conda environment: a name or a path
    conda: str | None = None
    #: path of a Python virtual environment
    venv: str | None = None
    #: exported variables
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: file with NAME=VALUE lines read inside the job; never rendered into the script
    secrets_file: str | None = None
    #: shell lines run as they stand, last of the set-up
    setup: str | None = None
    #: the submitting shell's variables: --export=ALL or --export=NONE
    export: Literal["all", "none"] = "all"
    #: those of them that a job gets whatever they are called: names that look like secrets, and
    #: others than those that are stored for a job that starts later
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

    #: torchrun, srun (one task a rank), python
    launcher: Literal["torchrun", "srun", "python"] = "torchrun"
    #: auto: standalone on one node, c10d on several
    rendezvous: Literal["auto", "standalone", "c10d", "static"] = "auto"
    #: ranks a node; auto: GPUs of the node, else 1
    nproc_per_node: int | Literal["auto"] = "auto"
    #: python module, "trainers.train"
    module: str | None = None
    #: python file
    script: str | None = None
    #: program and arguments as given after `--`; with a batch file its arguments
    program: tuple[str, ...] = ()
    #: a batch script to be run as it stands, by its absolute path; what it asks of sbatch stays in
    #: it, and `sbatch` holds what goes onto sbatch's command line
    batch_file: str | None = None
    #: any shell line, run as it stands
    command: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metrics:
    """`[metrics]`: how numbers are found in the log."""

    #: names of patterns; empty: all that there are
    patterns: tuple[str, ...] = ()
    #: patterns of this job alone, by name, as tables of their TOML form
    pattern: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: files with nvidia-smi's CSV, "gpu_usage_%j.log"; relative ones count from the job's folder.
    #: The trainer's own are found without
    gpu_csv: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alerts:
    """`[alerts]`: what is told of a job while it runs; left out: the profile's, else as said."""

    #: no new line in log and metrics for so long; 0: never. 30
    stalled_minutes: int | None = None
    #: throughput below so many percent of its own median; 0: never. 50
    slow_percent: int | None = None
    #: a loss that is NaN or infinite. true
    nan_loss: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """`[array]`: one script run as several tasks, from 0 on. At most one of tasks and size."""

    #: for each task the arguments that are added to [args], or stand in place of those there
    tasks: tuple[Mapping[str, ArgumentValue], ...] | None = None
    #: how many tasks; the program reads SLURM_ARRAY_TASK_ID by itself
    size: int | None = None
    #: the most that run at a time, --array's %
    max_running: int | None = None

    @property
    def task_ids(self) -> range | None:
        """Return the tasks' numbers; None for a job that is no array."""
        if self.tasks is not None:
            return range(len(self.tasks))
        return None if self.size is None else range(self.size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job as a person describes it: `[job]`'s keys, and a record for each further table."""

    #: --job-name; the token is put behind it at submission
    name: str
    #: --partition
    partition: str | None = None
    #: --account
    account: str | None = None
    #: --qos
    qos: str | None = None
    #: --reservation
    reservation: str | None = None
    #: --constraint
    constraint: str | None = None
    #: --time, as Slurm takes it: "30", "1:30:00", "2-00"
    time_limit: str | None = None
    #: --comment; left out: the token
    comment: str | None = None
    #: --mail-type
    mail_type: str | None = None
    #: --mail-user
    mail_user: str | None = None
    #: --dependency
    dependency: str | None = None
    #: --requeue or --no-requeue; left out: the site's default
    requeue: bool | None = None
    #: seconds before the time limit at which the job is told to stop (--signal)
    signal_seconds: int | None = None
    #: --exclusive
    exclusive: bool = False
    #: --nodelist
    nodelist: str | None = None
    #: --exclude
    exclude: str | None = None
    #: --output; must hold %j, and no %N, %n or %t
    output: str | None = None
    #: --error, same rule; left out: with the output
    error: str | None = None
    #: --chdir; left out: where submit was called
    chdir: str | None = None
    #: for our own use, "team=vision"; Slurm never sees them
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
    #: further sbatch options, as they stand: --KEY=VALUE, true = bare flag
    sbatch: Mapping[str, SbatchValue] = dataclasses.field(default_factory=dict)
