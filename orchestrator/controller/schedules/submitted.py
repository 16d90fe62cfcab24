"""The jobs of a schedule's trigger or a graph's node, which submitted a job, array or sweep."""

from __future__ import annotations

from typing import Protocol

from db import unit_of_work
from orchestrator import jobs
from orchestrator.controller.recovery import chains
from orchestrator.controller.sweeps import queries
from orchestrator.schedules import records


class Submitter(Protocol):
    """A trigger or a node. Both rows are None before it has submitted something."""

    @property
    def job_row(self) -> int | None: ...
    @property
    def sweep_row(self) -> int | None: ...


def jobs_of(work: unit_of_work.UnitOfWork, submitter: Submitter) -> list[jobs.Job]:
    """Return the newest job of each array task or point."""
    if submitter.sweep_row is not None:
        return work.sweeps.jobs(submitter.sweep_row)
    first = None if submitter.job_row is None else work.jobs.get(submitter.job_row)
    return [] if first is None else chains.continued(work, work.jobs.of_submissions([first.token]))


def has_ended(work: unit_of_work.UnitOfWork, submitter: Submitter) -> bool:
    """Tell whether all jobs have ended, and no recovery rule will submit another one."""
    if submitter.sweep_row is not None:
        sweep = work.sweeps.get(submitter.sweep_row)
        groups = work.sweeps.groups([submitter.sweep_row]).get(submitter.sweep_row, [])
        if sweep is not None and queries.unfinished(sweep, groups):
            return False
    return all(job.is_over for job in jobs_of(work, submitter))


def any_live(work: unit_of_work.UnitOfWork, schedule: records.Schedule) -> bool:
    """Tell whether jobs of a schedule have not ended."""
    fired = work.schedules.triggers_without_verdict(schedule.row)
    return any(not has_ended(work, trigger) for trigger in fired)
