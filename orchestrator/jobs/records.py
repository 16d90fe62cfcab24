"""Records of a job: submission, current state, attempts, events and metrics."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Collection
from typing import Literal

from orchestrator.jobs import states


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """One call of sbatch, or the intent to make it."""

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
    #: hash of the request to the local runner; None: a Slurm job, or not submitted yet
    request_sha256: str | None = None

    @property
    def calling_folder(self) -> str:
        """The folder in which the command was called, from the provenance."""
        return str(json.loads(self.provenance)["folder"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submitter:
    """The process that calls sbatch: others check whether it is alive."""

    host: str
    #: /proc/sys/kernel/random/boot_id
    boot_id: str
    pid: int
    #: clock ticks since boot, field 22 of /proc/PID/stat: differs if the PID was reused
    start_ticks: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alert:
    #: stalled, slow, straggler or nan_loss
    rule: str
    attempt: int
    #: time of the last log line, the first slow window, or the first NaN
    since: datetime.datetime
    detail: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What is known about each start of a job. Times are aware, in UTC."""

    state: states.JobState
    reason: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    node_list: str | None = None
    submitted_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reported(Run):
    """What Slurm reports about a job."""

    array_job_id: str | None = None
    array_task_id: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: int | None = None
    #: on all nodes together
    gpus: int | None = None
    #: cores or hardware threads as Slurm counts them, on all nodes together
    cpus: int | None = None
    time_limit_seconds: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(Reported):
    """The current state of a job or of one array task."""

    #: our own number, `@7`
    row: int
    token: str
    cluster: str
    scheduler: Literal["slurm", "local"]
    name: str
    run_dir: str
    #: when the intent was stored; for a tracked job, when it was submitted
    created_at: datetime.datetime
    #: full name in Slurm of a tracked job (not submitted by us); None: NAME.TOKEN
    tracked_name: str | None = None
    #: "123", "123_4", "local-7"; None: not known yet
    job_id: str | None = None
    #: SLURM_JOB_ID of an array task ("125" for "123_4"), otherwise the number in job_id
    raw_job_id: str | None = None
    #: as Slurm printed it
    raw_state: str | None = None
    #: failure cause, a word of diagnosis
    cause: str | None = None
    #: number of the newest attempt, from 0
    attempt: int = 0
    restart_count: int = 0
    sweep: str | None = None
    labels: tuple[str, ...] = ()
    #: from the last check; `current_alerts` are those that still hold
    alerts: tuple[Alert, ...] = ()
    stdout_path: str | None = None
    stderr_path: str | None = None
    #: since when the state is not confirmed; None: it is. Not stored
    stale_since: datetime.datetime | None = None
    #: start time of the newest Slurm command whose output was applied to this row
    observed_at: datetime.datetime | None = None
    #: number of consecutive outputs of Slurm without this job, and time of the first
    misses: int = 0
    missing_since: datetime.datetime | None = None
    #: the end of the newest attempt is final
    settled: bool = False
    submitter: Submitter | None = None
    #: when sbatch was first seen as possibly ended; the grace period starts here
    #: (while SUBMITTING: when an earlier intent was taken up again)
    grace_since: datetime.datetime | None = None
    #: while Slurm does not have it: when it is submitted again automatically; None: never
    resend_at: datetime.datetime | None = None
    #: how often Slurm refused it for now
    refusals: int = 0
    #: row of the job that it continues
    continues: int | None = None
    #: after a failure its [retry] is still to be applied
    recovers: bool | None = None
    #: grows with each change of the row
    version: int = 0

    @property
    def is_deferred(self) -> bool:
        """Whether it is not submitted and will be submitted again automatically."""
        return self.state is states.JobState.NOT_SUBMITTED and self.resend_at is not None

    @property
    def current_alerts(self) -> tuple[Alert, ...]:
        """The alerts of the current attempt, while it runs."""
        if self.state is not states.JobState.RUNNING:
            return ()
        return tuple(alert for alert in self.alerts if alert.attempt == self.attempt)

    @property
    def fold_key(self) -> tuple[object, ...]:
        """What tasks of an array have in common that lists show as one line."""
        return self.token, self.state, self.reason, self.exit_code

    @property
    def ended(self) -> bool:
        """Whether nothing more happens automatically."""
        return self.state in states.TERMINAL and not self.is_deferred

    @property
    def is_over(self) -> bool:
        """Whether it has ended and no recovery rule may continue it."""
        return self.ended and (not self.recovers or self.state is states.JobState.COMPLETED)


#: How lists of jobs can be sorted.
ORDERS = ("submitted", "name", "state", "started", "ended", "gpus", "time_limit")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobGroup:
    """A job, or the tasks of an array with the same state, reason and exit code."""

    #: the one with the lowest row
    first: Job
    last_row: int
    count: int
    #: lowest and highest task; None: not an array
    first_task: int | None
    last_task: int | None

    @property
    def is_range(self) -> bool:
        """Whether it has all tasks from the first to the last."""
        if self.first_task is None or self.last_task is None:
            return False
        return self.last_task - self.first_task == self.count - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    row: int
    #: None: not an array
    array_task_id: int | None
    state: states.JobState
    job_id: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt(Run):
    """One start of a job: the next follows a requeue, a preemption or a lost node."""

    #: from 0: SLURM_RESTART_COUNT
    number: int
    raw_state: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnreadEnvironment:
    """An attempt whose record of the environment is not stored yet."""

    job_row: int
    #: of the attempt
    number: int
    started_at: datetime.datetime
    ended_at: datetime.datetime | None
    #: 0 for a job that is no array
    array_task: int
    run_dir: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobEvent:
    """An entry in the history of a job; entries are never rewritten."""

    #: when it was seen or done
    at: datetime.datetime
    #: state, submit, adopt, attempt, cancel, note, ...
    kind: str
    attempt: int = 0
    state: states.JobState | None = None
    raw_state: str | None = None
    #: squeue, sacct, record, sbatch, user, ...
    source: str
    #: a plain sentence
    detail: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One value from a log or from metrics.jsonl."""

    #: throughput, loss, val_accuracy, ...
    name: str
    value: float
    #: as in the log: "images/second"; "": none
    unit: str = ""
    step: int | None = None
    epoch: int | None = None
    rank: int | None = None
    world_size: int | None = None
    #: when the program wrote it; None: the log has no times
    time: datetime.datetime | None = None
    attempt: int = 0
    #: log:PATTERN or jsonl
    source: str
    #: file and line it was read from
    path: str = ""
    line: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobQuery:
    """Conditions on jobs. All given conditions must hold; of several values of a field, any."""

    #: our row numbers
    rows: Collection[int] = ()
    #: Slurm's: "123" also finds the tasks of array 123
    job_ids: Collection[str] = ()
    names: Collection[str] = ()
    #: in its name, sweep, labels or nodes, or its ID, row (@7) or partition: the job has all
    words: Collection[str] = ()
    #: the job has all of them
    labels: Collection[str] = ()
    #: names of sweeps: all jobs with that sweep name
    sweeps: Collection[str] = ()
    #: row numbers of sweeps: the newest job of each point
    sweep_rows: Collection[int] = ()
    states: Collection[str] = ()
    partitions: Collection[str] = ()
    cluster: str | None = None
    #: "slurm" or "local"; none: both
    scheduler: str | None = None
    #: not settled, or deferred
    live: bool = False
    #: not settled, or deferred until this moment or earlier
    due: datetime.datetime | None = None
    #: deferred: not submitted, and submitted again automatically
    deferred: bool = False
    #: tracked: not submitted by us
    tracked: bool = False
    settled: bool = False
    #: ended since this moment, not COMPLETED, and without a stored cause
    unexplained_since: datetime.datetime | None = None
    #: the row number is smaller
    below: int | None = None
    #: created or ended since this moment
    since: datetime.datetime | None = None
    #: live, or created or ended since this moment
    live_or_since: datetime.datetime | None = None
    #: the newest jobs only; none: all
    limit: int | None = 100
    #: the limit counts submissions, so that no array is cut
    whole_arrays: bool = False
