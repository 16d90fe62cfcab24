"""Jobs: the specification (JobSpec) and the records (Job, Attempt, JobEvent, Metric). No I/O."""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

import orchestrator
from orchestrator.jobs.retry import ArgumentValue, Retry
from orchestrator.jobs.spec import (
    CONTAINER_GPU,
    RUNTIMES,
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
    Runtime,
    SbatchValue,
    Tracking,
)
from orchestrator.jobs.states import TERMINAL, UNCONFIRMED, JobState

if TYPE_CHECKING:
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


class _Package(types.ModuleType):
    """This package: `orc.jobs(...)` of the Python API has the same name, so it can be called.

    The records are imported when one is used: the configuration needs only the specification.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(importlib.import_module("orchestrator.jobs.records"), name)
        self.__dict__[name] = value
        return value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return orchestrator.list_jobs(*args, **kwargs)


sys.modules[__name__].__class__ = _Package
