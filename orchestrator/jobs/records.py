"""What is known of a job: its submission, its newest view, its attempts, history and numbers."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Literal

from orchestrator.jobs import states


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
    #: of what the local runner was asked for; none: a job of Slurm's, or not sent yet
    request_sha256: str | None = None

    @property
    def calling_folder(self) -> str:
        """The folder in which the command was called, from the provenance."""
        return str(json.loads(self.provenance)["folder"])


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
class Alert:
    """What is wrong with a job that runs."""

    #: stalled, slow or nan_loss
    rule: str
    #: of the attempt with this number
    attempt: int
    #: when it began: the last line, the first slow window, the first NaN
    since: datetime.datetime
    #: a plain sentence
    detail: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What is known of a job (or of one array task): the newest view. Times are aware, in UTC."""

    #: our own number, `@7`
    row: int
    token: str
    cluster: str
    scheduler: Literal["slurm", "local"]
    name: str
    state: states.JobState
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
    #: cores or hardware threads as Slurm counts them, in all
    cpus: int | None = None
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
    #: as they were last found; `current_alerts` are those that still hold
    alerts: tuple[Alert, ...] = ()
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
    #: row of the job whose work it goes on with
    continues: int | None = None
    #: what follows its end is still to be decided by its spec's [retry]
    recovers: bool | None = None
    #: grows with each change of the row
    version: int = 0

    @property
    def is_deferred(self) -> bool:
        """Whether it is not submitted and will be sent again by itself."""
        return self.state is states.JobState.NOT_SUBMITTED and self.resend_at is not None

    @property
    def current_alerts(self) -> tuple[Alert, ...]:
        """Return what is wrong now; of a job that does not run, and of an attempt before, none."""
        if self.state is not states.JobState.RUNNING:
            return ()
        return tuple(alert for alert in self.alerts if alert.attempt == self.attempt)

    @property
    def ended(self) -> bool:
        """Whether nothing happens any more by itself."""
        return self.state in states.TERMINAL and not self.is_deferred

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and no recovery rule may go on from that."""
        return self.ended and (not self.recovers or self.state is states.JobState.COMPLETED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """The fields of a job that a submission needs of each of its many array tasks."""

    row: int
    #: none: the submission is no array
    array_task_id: int | None
    state: states.JobState
    job_id: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of a job: a requeue, a preemption or a lost node begins the next one."""

    #: from 0: SLURM_RESTART_COUNT
    number: int
    state: states.JobState
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
    state: states.JobState | None = None
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
