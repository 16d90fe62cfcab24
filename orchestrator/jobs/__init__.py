"""Jobs: the specification (JobSpec) and the records (Job, Attempt, JobEvent, Metric). No I/O."""

import sys
import types
from typing import Any

import orchestrator
from orchestrator.jobs.records import (
    ORDERS,
    Alert,
    Attempt,
    Job,
    JobEvent,
    JobGroup,
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
    PluginName,
    Resources,
    SbatchValue,
)
from orchestrator.jobs.states import TERMINAL, UNCONFIRMED, JobState


class _CallablePackage(types.ModuleType):
    """This package, which can be called: `orc.jobs(...)` of the Python API has the same name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return orchestrator.list_jobs(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
