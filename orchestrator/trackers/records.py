"""A run as trackers have it: all jobs that continue one another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from orchestrator import jobs
from orchestrator.trackers.series import Series

Target = Literal["tensorboard", "mlflow", "wandb"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    #: the token of the first job, and the number of its array task
    id: str
    name: str
    #: the sweep; "": none
    group: str
    #: seconds since 1970
    created: float
    #: the newest job
    job: jobs.Job
    tracking: jobs.Tracking
    #: arguments of the program
    parameters: Mapping[str, str]
    series: Sequence[Series]

    @property
    def values(self) -> int:
        return sum(len(series.steps) for series in self.series)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export did for a run."""

    run: Run
    #: values that were not exported before
    added: int
    #: file, folder or address
    place: str


def run_id(first: jobs.Job) -> str:
    """Return the ID that the script of the first job of a chain uses, too."""
    return first.token if first.array_task_id is None else f"{first.token}-{first.array_task_id}"
