"""What was submitted as one thing, by a schedule or a graph: a job or array, or a sweep."""

from __future__ import annotations

from typing import Protocol

from db import unit_of_work
from orchestrator import jobs
from orchestrator.controller.recovery import chains
from orchestrator.controller.sweeps import queries


class Whole(Protocol):
    """A job with the tasks of its array, or a sweep; neither: nothing was submitted yet."""

    @property
    def job_row(self) -> int | None: ...
    @property
    def sweep_row(self) -> int | None: ...


def jobs_of(work: unit_of_work.UnitOfWork, whole: Whole) -> list[jobs.Job]:
    """Return the newest job of each task, or of each point."""
    if whole.sweep_row is not None:
        return work.sweeps.jobs(whole.sweep_row)
    first = None if whole.job_row is None else work.jobs.get(whole.job_row)
    return [] if first is None else chains.continued(work, work.jobs.of_submissions([first.token]))


def has_ended(work: unit_of_work.UnitOfWork, whole: Whole) -> bool:
    """Tell whether nothing more becomes of it, by itself or by a recovery rule."""
    if whole.sweep_row is not None:
        sweep = work.sweeps.get(whole.sweep_row)
        groups = work.sweeps.groups([whole.sweep_row]).get(whole.sweep_row, [])
        if sweep is not None and queries.unfinished(sweep, groups):
            return False
    return all(job.is_over for job in jobs_of(work, whole))
