"""Jobs: the specification (JobSpec) and the records (Job, Attempt, JobEvent, Metric). No I/O."""

from orchestrator.jobs.records import (
    Alert,
    Attempt,
    Job,
    JobEvent,
    JobQuery,
    Metric,
    Reported,
    Submission,
    Submitter,
    Task,
    UnreadEnvironment,
)
from orchestrator.jobs.retry import ArgumentValue, Retry
from orchestrator.jobs.spec import (
    SET_BY_US,
    SET_BY_US_MESSAGE,
    Alerts,
    Array,
    Code,
    Container,
    Environment,
    JobSpec,
    Launch,
    Metrics,
    Resources,
    SbatchValue,
)
from orchestrator.jobs.states import TERMINAL, UNCONFIRMED, JobState
