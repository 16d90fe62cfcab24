"""Facts that monitoring exports. Times are aware."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from orchestrator import jobs

#: Live jobs with series of their own: more series would burden Prometheus.
MAX_JOBS = 100


class Throughput(NamedTuple):
    #: name of the metric in the log
    name: str
    unit: str
    value: float
    step: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobFacts:
    """A live job."""

    job: jobs.Job
    #: when it last wrote to its log or its file of metrics; None: unknown
    progress_at: datetime.datetime | None = None
    throughput: Throughput | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmFacts:
    """How Slurm answered on a cluster."""

    cluster: str
    #: when squeue last answered; None: never
    answered_at: datetime.datetime | None
    is_failing: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class ControllerFacts:
    """The controller, which has made a pass."""

    is_healthy: bool
    #: start and duration of the last pass
    last_pass_at: datetime.datetime
    took_seconds: float
    #: step -> whether it failed in the last pass
    steps: Mapping[str, bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is exported."""

    version: str
    #: when the database was read
    at: datetime.datetime
    #: jobs in the database by state
    counts: Mapping[jobs.JobState, int]
    #: as db.stores.monitoring.MonitoringStore.totals()
    totals: Mapping[tuple[str, str], float]
    #: the first MAX_JOBS live jobs, and how many more there are
    live: Sequence[JobFacts]
    dropped: int
    running_gpus: int
    #: when the job was submitted that has been pending for the longest time
    oldest_pending_at: datetime.datetime | None
    last_failure_at: datetime.datetime | None
    #: notices by kind
    notices: Mapping[str, int]
    #: notices that are not sent, by the state of their delivery
    deliveries: Mapping[str, int]
    slurm: Sequence[SlurmFacts]
    #: None: a controller has never run
    controller: ControllerFacts | None
