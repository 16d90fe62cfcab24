"""What the witnesses of a job said, and what follows from it: records only."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Literal

from orchestrator import jobs
from orchestrator.jobs import JobState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """What one witness said of one job at one moment, in our words."""

    #: squeue, sacct, record (the exit record in the run folder) or machine (of a local job)
    source: Literal["squeue", "sacct", "record", "machine"]
    #: before the command was started: what it says is at least this new
    observed_at: datetime.datetime
    #: full Slurm job name, NAME.TOKEN
    name: str
    #: "123", "123_4"
    job_id: str
    #: Slurm's own number of this record, "125"
    raw_job_id: str
    array_job_id: str | None = None
    array_task_id: int | None = None
    state: JobState
    raw_state: str
    reason: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    cpus: int | None = None
    node_list: str | None = None
    time_limit_seconds: int | None = None
    submitted_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    restart_count: int | None = None
    stdout_path: str | None = None
    #: command line of sbatch (sacct's SubmitLine), second witness of the token
    submit_line: str | None = None
    #: sacct -D: rows of one job in the order they were begun, from 0
    row_number: int = 0
    #: worst state, exit code and signal among the steps, where they were asked for
    step_state: JobState | None = None
    step_exit_code: int | None = None
    step_exit_signal: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Witnesses:
    """What was said of one job in one refresh; only rows that are proven to be this job's."""

    squeue: tuple[Observation, ...] = ()
    #: all its rows (sacct -D), oldest first
    sacct: tuple[Observation, ...] = ()
    record: Observation | None = None
    #: SLURM_JOB_ID in the owner link of the run folder: the one record that may run
    owner: str | None = None
    #: Slurm gives this job ID to another job now
    reused: bool = False
    #: ID of this task's array, where squeue lacks the task and other tasks were seen just now
    array_job_id: str | None = None
    #: we asked scancel for it
    cancel_asked: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answers:
    """Which questions of a refresh were answered well; absence means something only then."""

    #: before the good squeue was started
    squeue_at: datetime.datetime
    #: sacct answered well and was asked for this job
    sacct_asked: bool
    #: the cluster keeps accounts
    accounting: bool
    #: the steps of this job were asked for, or nothing in sacct's rows calls for it
    steps_known: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What changes: columns of the job row, attempts to store, events to add."""

    changes: dict[str, object] = dataclasses.field(default_factory=dict)
    attempts: tuple[jobs.Attempt, ...] = ()
    events: tuple[jobs.JobEvent, ...] = ()
