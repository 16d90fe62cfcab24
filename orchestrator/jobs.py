"""What a job is: the request (JobSpec) and what is known of it (Job, Attempt, JobEvent, Metric).

Frozen records and enums; no I/O. Words are those of `man sbatch`, `man sacct` and torchrun.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Literal, TypeAlias

ArgumentValue: TypeAlias = str | int | float | bool | tuple[str | int | float, ...]
SbatchValue: TypeAlias = str | int | bool


class JobState(enum.StrEnum):
    """Slurm's job states by their long names, and ours beside them.

    Source: job_state_codes.html of Slurm 24.11 and slurm_protocol_defs.c; a state that is missing
    here reads UNKNOWN, never terminal.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    # Flags: the tools print one of them in place of the base state.
    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    STAGE_OUT = "STAGE_OUT"
    RESIZING = "RESIZING"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STOPPED = "STOPPED"
    REVOKED = "REVOKED"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    SIGNALING = "SIGNALING"
    #: A raw state that this table lacks, and nothing else.
    UNKNOWN = "UNKNOWN"
    # Ours.
    #: The intent is stored; sbatch has not answered yet.
    SUBMITTING = "SUBMITTING"
    #: sbatch may or may not have been taken by Slurm; being looked for.
    SUBMIT_UNKNOWN = "SUBMIT_UNKNOWN"
    #: Slurm never got it.
    NOT_SUBMITTED = "NOT_SUBMITTED"
    #: Slurm had it and knows nothing of it any more, and no witness tells its end.
    LOST = "LOST"


#: States after which nothing happens any more, unless a requeue opens a new attempt.
TERMINAL = frozenset(
    {
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
        JobState.OUT_OF_MEMORY,
        JobState.REVOKED,
        JobState.NOT_SUBMITTED,
        JobState.LOST,
    }
)
#: States in which only we know the job: Slurm has no job ID for it, as far as we know.
UNCONFIRMED = frozenset({JobState.SUBMITTING, JobState.SUBMIT_UNKNOWN, JobState.NOT_SUBMITTED})


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

    #: names of patterns; empty: all that ship
    patterns: tuple[str, ...] = ()


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
    #: further sbatch options, as they stand: --KEY=VALUE, true = bare flag
    sbatch: Mapping[str, SbatchValue] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """One intended sbatch: its token, its script and where both came from."""

    #: 12 characters [a-z0-9]: installation ID and a random part
    token: str
    cluster: str
    scheduler: Literal["slurm", "local"]
    name: str
    #: the script as submitted, byte for byte
    script: str
    #: the JobSpec as JSON
    spec: str
    #: runs_dir/NAME.TOKEN
    run_dir: str
    #: git commit, dirty diff, template name and hash, version, argv, as JSON
    provenance: str
    created_at: datetime.datetime


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submitter:
    """The process that called sbatch, so that others can tell whether it is still at it."""

    host: str
    #: /proc/sys/kernel/random/boot_id
    boot_id: str
    pid: int
    #: clock ticks since boot, field 22 of /proc/PID/stat: tells a reused PID
    start_ticks: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What is known of a job (or of one array task): the newest view. Times are aware, in UTC."""

    #: our own number, `@7`
    row: int
    token: str
    cluster: str
    scheduler: Literal["slurm", "local"]
    name: str
    state: JobState
    run_dir: str
    #: when the intent was stored; of a tracked job, when Slurm first got it
    created_at: datetime.datetime
    #: the whole name in Slurm of a job that was not sent by us; none: NAME.TOKEN
    tracked_name: str | None = None
    #: Slurm's: "123", "123_4"; local: "local-7"; none while it is not known
    job_id: str | None = None
    #: SLURM_JOB_ID of this very task, where it differs ("125" for "123_4"), else job_id's number
    raw_job_id: str | None = None
    array_job_id: str | None = None
    array_task_id: int | None = None
    #: as Slurm printed it
    raw_state: str | None = None
    reason: str | None = None
    #: why it failed, one word of diagnosis
    cause: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: int | None = None
    #: in all, over the nodes
    gpus: int | None = None
    node_list: str | None = None
    time_limit_seconds: int | None = None
    submitted_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    #: number of the newest attempt, from 0: its restart count
    attempt: int = 0
    restart_count: int = 0
    sweep: str | None = None
    labels: tuple[str, ...] = ()
    stdout_path: str | None = None
    stderr_path: str | None = None
    #: since when the state could not be confirmed; none: it is fresh. Told by the controller
    stale_since: datetime.datetime | None = None
    #: moment (before the command was started) of the newest answer applied to this row
    observed_at: datetime.datetime | None = None
    #: good answers of Slurm in a row that did not know this job, and when the first came
    misses: int = 0
    missing_since: datetime.datetime | None = None
    #: nothing more is expected of Slurm for the newest attempt
    settled: bool = False
    submitter: Submitter | None = None
    #: when sbatch was first found to be possibly running no more; the grace counts from here
    #: (while SUBMITTING: when an earlier intent was taken up again)
    grace_since: datetime.datetime | None = None
    #: while Slurm does not have it: when it is sent again by itself; none: only when asked to
    resend_at: datetime.datetime | None = None
    #: how often Slurm refused it for now
    refusals: int = 0
    #: grows with each change of the row
    version: int = 0

    @property
    def waits_for_room(self) -> bool:
        """Whether it is not submitted and will be sent again by itself."""
        return self.state is JobState.NOT_SUBMITTED and self.resend_at is not None

    @property
    def ended(self) -> bool:
        """Whether nothing happens any more by itself."""
        return self.state in TERMINAL and not self.waits_for_room


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of a job: a requeue, a preemption or a lost node begins the next one."""

    #: from 0: SLURM_RESTART_COUNT
    number: int
    state: JobState
    raw_state: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    node_list: str | None = None
    submitted_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Something that was seen or done, kept for ever and never rewritten."""

    #: when we saw it
    at: datetime.datetime
    #: state, submit, adopt, attempt, cancel, note, ...
    kind: str
    attempt: int = 0
    state: JobState | None = None
    raw_state: str | None = None
    #: squeue, sacct, record, sbatch, user, ...
    source: str
    #: a plain sentence
    detail: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One number a job told, from its log or its metrics.jsonl."""

    #: throughput, loss, val_accuracy, ...
    name: str
    value: float
    #: the log's own: "images/second"; "" where it has none
    unit: str = ""
    step: int | None = None
    epoch: int | None = None
    rank: int | None = None
    world_size: int | None = None
    #: when the program wrote it; none where the log has no time
    time: datetime.datetime | None = None
    attempt: int = 0
    #: log:PATTERN or jsonl
    source: str
    #: file and line it was read from
    path: str = ""
    line: int | None = None
