"""The specification of a job, as its TOML file has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from orchestrator.jobs.retry import ArgumentValue, Retry

#: Keys of `[code]` that only stored specs have, and the message where a file sets one.
SET_BY_US = ("tree", "root", "folder", "python_paths")
SET_BY_US_MESSAGE = "is set when a snapshot is taken: remove it, and set code.snapshot = true"

#: `container.gpu` by the maker of the GPUs. Those of Intel are files in /dev/dri, which is there.
CONTAINER_GPU: Mapping[str, Literal["nv", "rocm", "none"]] = {
    "nvidia": "nv",
    "amd": "rocm",
    "intel": "none",
}

SbatchValue: TypeAlias = str | int | bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime:
    """What distinguishes a container runtime from the others."""

    #: what `container.image` is: a path; a name that the runtime knows; or a path if it looks like
    #: one
    image: Literal["path", "name", "either"] = "path"
    #: whether it is an option of srun
    needs_srun: bool = False
    #: whether a bind can be read-only
    binds_read_only: bool = True
    #: what replaces `container.gpu`; "": the runtime knows its values
    gpu_advice: str = ""
    #: what replaces an image URL
    url_advice: str = ""


_SIF = "every node would download {scheme}: build a SIF first: {runtime} build IMAGE.sif {image}"
#: The table of container runtimes: the file `templates/container/NAME.sh.j2` belongs to each.
RUNTIMES: Mapping[str, Runtime] = {
    "apptainer": Runtime(url_advice=_SIF),
    "singularity": Runtime(url_advice=_SIF),
    "pyxis": Runtime(image="either", needs_srun=True),
    "podman-hpc": Runtime(
        image="name",
        url_advice="podman-hpc knows images by name: run `podman-hpc pull {image}` once, and write "
        "the name without {scheme}",
    ),
    "charliecloud": Runtime(
        binds_read_only=False,
        gpu_advice="ch-run has no option for GPUs: run `ch-fromhost --nvidia IMAGE` once, which "
        "copies the driver's libraries into the image",
        url_advice="every node would download {scheme}: convert the image first: ch-image pull "
        "NAME, then ch-convert NAME FOLDER",
    ),
    "edf": Runtime(
        image="either",
        needs_srun=True,
        gpu_advice="the container engine of the site sets up GPUs, as the EDF says",
        url_advice="must be an EDF: a path, or a name in the EDF search path. Write {image} into "
        "that file: image = ...",
    ),
}


class PluginName(str):
    """The name of an installed plugin; it is checked when a job is submitted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources:
    """`[resources]`: requested from Slurm."""

    nodes: int = 1
    ntasks: int | None = None
    #: tasks per node; default: set by the launcher (torchrun: 1)
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    mem: str | None = None
    mem_per_cpu: str | None = None
    mem_per_gpu: str | None = None
    #: GPUs per node: --gpus-per-node, or --gres if the profile says so
    gpus_per_node: int | None = None
    gpu_type: str | None = None
    #: maker of the GPUs: which variables say what a task may use (amd: ROCR_VISIBLE_DEVICES alone;
    #: intel: ZE_AFFINITY_MASK), and how GPUs reach a container; default: the profile's
    gpu_vendor: Literal["nvidia", "amd", "intel"] | None = None
    #: generic resources (--gres), instead of gpus_per_node and gpu_type: "gpu:a100:4"
    gres: str | None = None
    tmp: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """`[environment]`: set up by the script before the program starts."""

    #: environment modules to load, in this order; an empty list: none; default: the profile's
    modules: tuple[str, ...] | None = None
    #: run `module purge` first; default: true if there are modules
    module_purge: bool | None = None
    #: name or path of a conda environment
    conda: str | None = None
    #: path of a Python virtual environment
    venv: str | None = None
    #: exported variables, which override the profile's; an empty table: none, not even the
    #: profile's
    variables: Mapping[str, str] | None = None
    #: network between the nodes: a name of `orchestrator config fabrics`, or the path of a file
    #: such as "./mill.toml"; sets variables of NCCL, RCCL and gloo, unless the job has them, and
    #: binds; "": none; default: the profile's
    fabric: str | None = None
    #: file with NAME=VALUE lines that the job reads; its content is not in the script
    secrets_file: str | None = None
    #: shell lines that run after the rest of this table; a command that fails ends the job with
    #: exit code 78, unless `||`, `if` or `set +e` allows it
    setup: str | None = None
    #: whether the job gets the submitting shell's variables: --export=ALL or --export=NONE
    export: Literal["all", "none"] = "all"
    #: variables of the submitting shell that the job gets although their names look like secrets,
    #: or although they are not stored for a job that starts later
    inherit: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Container:
    """`[container]`: the image the program runs in."""

    #: a container runtime, or a plugin of orchestrator.container_runtimes
    runtime: (
        Literal["none", "apptainer", "singularity", "pyxis", "podman-hpc", "charliecloud", "edf"]
        | PluginName
    ) = "none"
    #: path of the image; pyxis: also a registry reference; podman-hpc: the name of an image that
    #: was pulled; edf: an environment definition file, or its name in the EDF search path
    image: str | None = None
    #: files and folders to bind, after the profile's; an empty list: none, not even the profile's
    binds: tuple[str, ...] | None = None
    #: how GPUs reach the container: --nv, --rocm; default: as resources.gpu_vendor needs it,
    #: otherwise none. GPUs of Intel need no option; charliecloud and edf have none
    gpu: Literal["nv", "rocm", "none"] | None = None

    @property
    def properties(self) -> Runtime:
        """The properties of the runtime; a plugin has those of apptainer."""
        return RUNTIMES.get(self.runtime) or Runtime()

    @property
    def image_path(self) -> str | None:
        """The image if it is a path, relative to the job's folder or absolute."""
        kind = self.properties.image
        if self.image is None or kind == "name":
            return None
        is_edf = self.runtime == "edf" and ("/" in self.image or self.image.endswith(".toml"))
        if kind == "either" and not is_edf and not self.image.startswith(("/", "./", "../")):
            return None
        return self.image


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """`[launch]`: how the program is started. Exactly one of module, script, program, command."""

    #: training framework of the script or module: chooses launcher, tasks and variables, which
    #: other keys override, and refuses jobs whose ranks would wait for each other
    framework: (
        Literal[
            "accelerate",
            "deepspeed",
            "jax",
            "lightning",
            "megatron",
            "ray",
            "torchtitan",
            "transformers",
        ]
        | None
    ) = None
    #: auto: that of the framework; without one torchrun for a Python script or module that wants
    #: more than one rank (nodes times GPUs per node; without GPUs, tasks), otherwise the program
    #: runs as it is, once, on the first node. torchrun; srun: one task per rank; python: as it is;
    #: ray: `ray symmetric-run`, one task per node; or a plugin of orchestrator.launchers
    launcher: Literal["auto", "torchrun", "srun", "python", "ray"] | PluginName = "auto"
    #: how torchrun's nodes meet; auto: standalone on one node, c10d on several
    rendezvous: Literal["auto", "standalone", "c10d", "static"] = "auto"
    #: ranks that torchrun starts per node; auto: one per GPU of the node, otherwise 1
    nproc_per_node: int | Literal["auto"] = "auto"
    #: Python module to run, "trainers.train"
    module: str | None = None
    #: path of the Python file to run
    script: str | None = None
    #: program and its arguments, as given after `--`
    program: tuple[str, ...] = ()
    #: absolute path of a batch script that is run unchanged; `program` has its arguments, `sbatch`
    #: the options on sbatch's command line
    batch_file: str | None = None
    command: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Code:
    """`[code]`: run a snapshot of the code instead of what is in the folder at the start."""

    #: take a snapshot of the working folder at submission; the job, its requeues, retries and
    #: resubmissions run it; default: the profile's, otherwise false
    snapshot: bool | None = None
    #: where the job unpacks it: once in the run folder, or on each node in TMPDIR, else /tmp;
    #: default: the profile's, otherwise "run_folder"
    unpack: Literal["run_folder", "node"] | None = None
    #: files, as patterns such as "tests/data/*.pem", that are accepted although they look like
    #: secrets, are too large, or are links or pointers without content; default: the profile's
    allow: tuple[str, ...] = ()
    #: largest file that is accepted, in MB; default: the profile's, otherwise 50
    max_file_mb: int | None = None

    #: git tree ID of the snapshot; set by orchestrator. No other snapshot is taken then
    tree: str | None = None
    #: absolute path of the folder that was copied; set by orchestrator
    root: str | None = None
    #: the job's working directory relative to root, "." or "experiments/a"; set by orchestrator
    folder: str | None = None
    #: folders relative to root that PYTHONPATH begins with; set by orchestrator
    python_paths: tuple[str, ...] = ()

    def over(self, lower: Code) -> Code:
        """Return these settings, completed with those of `lower`."""
        own = {name: value for name, value in vars(self).items() if value not in (None, ())}
        return dataclasses.replace(lower, **own)

    @property
    def is_due(self) -> bool:
        """Whether a snapshot is requested and not taken yet."""
        return bool(self.snapshot) and self.tree is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metrics:
    """`[metrics]`: how metrics are found in the log."""

    #: names of the patterns that are used; default: all
    patterns: tuple[str, ...] = ()
    #: patterns of this job, by name
    pattern: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: CSV files of nvidia-smi, "gpu_usage_%j.log", relative to the job's working directory; those
    #: of our trainer are found automatically
    gpu_csv: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alerts:
    """`[alerts]`: problems of a running job to report; default: the profile's."""

    #: minutes without a new line in log and metrics; 0: never; default: 30
    stalled_minutes: int | None = None
    #: throughput below this percentage of its own median; 0: never; default: 50
    slow_percent: int | None = None
    #: percentage by which step_time or compute_time of a rank is longer than that of the other
    #: ranks, if the ranks report it; 0: never; default: 50
    straggler_percent: int | None = None
    #: loss is NaN or infinite; default: true
    nan_loss: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tracking:
    """`[tracking]`: experiment trackers that the program uses; default: the profile's.

    Their variables are set, unless the job has them already, so that requeues, retries and
    continuation jobs go on with the same run.
    """

    #: trackers whose variables are set; an empty list: none; default: the profile's
    trackers: tuple[Literal["wandb", "mlflow", "trackio"], ...] | None = None
    #: project of W&B and Trackio and experiment of MLflow, unless the program names one
    project: str | None = None
    #: user or team of W&B
    entity: str | None = None
    #: W&B: "offline" writes into the run folder, "online" needs a connection from the compute
    #: nodes; default: the profile's, otherwise "offline"
    mode: Literal["offline", "online"] | None = None
    #: MLflow: address of the server; default: the profile's, otherwise a database in the run folder
    mlflow_uri: str | None = None
    #: pages of the run, by name, for `show` and the web pages: "https://example.org/{run_id}";
    #: also {project}, {entity}, {name} and {token}
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def over(self, lower: Tracking) -> Tracking:
        """Return these settings, completed with those of `lower`."""
        own = {name: value for name, value in vars(self).items() if value not in (None, {})}
        return dataclasses.replace(lower, **own)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """`[array]`: one script run as several tasks, numbered from 0. Not both tasks and size."""

    #: arguments of each task, which override those in `[args]`
    tasks: tuple[Mapping[str, ArgumentValue], ...] | None = None
    #: number of tasks; the program reads SLURM_ARRAY_TASK_ID
    size: int | None = None
    #: maximum number of tasks that run at the same time (--array's %)
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

    #: name of the job; Slurm's job name is NAME.TOKEN; default: the name of the program
    name: str
    #: partition, or several separated by commas; "": none, even if the profile has one; default:
    #: the profile's
    partition: str | None = None
    #: account to charge; "": none, even if the profile has one; default: the profile's
    account: str | None = None
    #: quality of service; "": none, even if the profile has one; default: the profile's
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    time_limit: str | None = None
    #: comment, visible to everybody on the cluster; default: the token
    comment: str | None = None
    mail_type: str | None = None
    mail_user: str | None = None
    dependency: str | None = None
    #: whether Slurm may requeue the job; default: the site's setting
    requeue: bool | None = None
    #: seconds before the time limit at which the job is asked to stop (--signal)
    signal_seconds: int | None = None
    exclusive: bool = False
    nodelist: str | None = None
    exclude: str | None = None
    #: log file; must contain %j, and no %N, %n or %t; default: in the run folder
    output: str | None = None
    #: file for stderr, with the same rule; default: the same file as output
    error: str | None = None
    #: working directory of the job; default: the folder in which submit is called
    chdir: str | None = None
    #: labels such as "team=vision", not passed to Slurm
    labels: tuple[str, ...] = ()
    resources: Resources = Resources()
    environment: Environment = Environment()
    container: Container = Container()
    launch: Launch = Launch()
    #: arguments of the program: `batch_size = 1024` is --batch-size 1024, true is an option alone
    args: Mapping[str, ArgumentValue] = dataclasses.field(default_factory=dict)
    array: Array = Array()
    code: Code = Code()
    metrics: Metrics = Metrics()
    tracking: Tracking = dataclasses.field(default_factory=Tracking)
    alerts: Alerts = Alerts()
    retry: Retry = dataclasses.field(default_factory=Retry)
    #: other options of sbatch: `KEY = "VALUE"` is --KEY=VALUE, true is an option alone
    sbatch: Mapping[str, SbatchValue] = dataclasses.field(default_factory=dict)
