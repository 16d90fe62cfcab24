"""What Slurm, the run folder and the local machine report about jobs."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Literal

from orchestrator import jobs
from orchestrator.jobs import JobState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation(jobs.Reported):
    """What one source reported about one job, with our names and units."""

    #: squeue, sacct, record (the exit record in the run folder) or machine (of a local job)
    source: Literal["squeue", "sacct", "record", "machine"]
    #: full Slurm job name, NAME.TOKEN
    name: str
    #: "123", "123_4"
    job_id: str
    #: Slurm's own number of this record, "125"
    raw_job_id: str
    raw_state: str
    restart_count: int | None = None
    stdout_path: str | None = None
    #: command line of sbatch (sacct's SubmitLine), which contains the token too
    submit_line: str | None = None
    #: sacct -D: rows of one job in the order of their start, from 0
    row_number: int = 0
    #: worst state, exit code and signal among the steps, if they were queried
    step_state: JobState | None = None
    step_exit_code: int | None = None
    step_exit_signal: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that one refresh knows about one job, and when and how well it was queried."""

    #: rows that are known to be of this job
    squeue: tuple[Observation, ...] = ()
    #: all its rows (sacct -D), oldest first
    sacct: tuple[Observation, ...] = ()
    exit_record: Observation | None = None
    #: SLURM_JOB_ID in the owner file of the run folder: the only job that may run
    owner: str | None = None
    #: Slurm has assigned this job ID to another job
    reused: bool = False
    #: ID of this task's array, if squeue lacks the task and other tasks were observed just now
    array_job_id: str | None = None
    #: orchestrator has called scancel for it
    cancel_requested: bool = False
    #: taken before the successful squeue was started
    squeue_at: datetime.datetime
    #: sacct succeeded and was queried for this job: only then does a missing row mean anything
    sacct_queried: bool
    #: the cluster has accounting
    accounting: bool
    #: the steps of this job were queried, or nothing in sacct's rows requires it
    steps_known: bool = True
    #: the process that submits the job is alive
    submitter_alive: bool = False
    #: how long a job may be missing; infinite if the clock may be wrong
    grace_seconds: float
    now: datetime.datetime

    def only(self, job_id: str | None) -> Evidence:
        """Return the evidence with only the rows of this job ID."""
        return dataclasses.replace(
            self,
            squeue=tuple(row for row in self.squeue if row.job_id == job_id),
            sacct=tuple(row for row in self.sacct if row.job_id == job_id),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transition:
    """What one refresh changes: fields of the job, attempts to store, and events to add."""

    changes: dict[str, object] = dataclasses.field(default_factory=dict)
    attempts: tuple[jobs.Attempt, ...] = ()
    events: tuple[jobs.JobEvent, ...] = ()

    def then(self, later: Transition) -> Transition:
        return Transition(
            changes={**self.changes, **later.changes},
            attempts=(*self.attempts, *later.attempts),
            events=(*self.events, *later.events),
        )


def event(
    job: jobs.Job,
    evidence: Evidence,
    kind: str,
    detail: str,
    *,
    source: str = "controller",
    state: JobState | None = None,
    raw_state: str | None = None,
) -> jobs.JobEvent:
    """Return an event of the newest attempt."""
    return jobs.JobEvent(
        at=evidence.now,
        kind=kind,
        attempt=job.attempt,
        state=state,
        raw_state=raw_state,
        source=source,
        detail=detail,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefreshState:
    """When Slurm last answered for a cluster, and which process is querying it now."""

    cluster: str = ""
    #: taken before the last successful squeue and sacct were started
    last_good_squeue_at: datetime.datetime | None = None
    last_good_sacct_at: datetime.datetime | None = None
    #: start of the newest refresh
    last_tried_at: datetime.datetime | None = None
    #: None: the newest refresh succeeded
    failing_since: datetime.datetime | None = None
    last_error: str | None = None
    #: process that is refreshing, and when its claim expires
    holder: str | None = None
    claimed_until: datetime.datetime | None = None
