"""Read sweeps: find one, count its points by state, list them, and find what they depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from db import unit_of_work
from orchestrator import errors, jobs, specs, sweeps
from orchestrator.controller.session import contexts

#: The program, the node or a limit ended the job.
FAILED = frozenset(
    jobs.TERMINAL
    - {
        jobs.JobState.COMPLETED,
        jobs.JobState.CANCELLED,
        jobs.JobState.NOT_SUBMITTED,
        jobs.JobState.LOST,
        jobs.JobState.REVOKED,
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A sweep with its points counted by state."""

    sweep: sweeps.StoredSweep
    totals: sweeps.ResourceTotals
    groups: tuple[sweeps.PointGroup, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointJob:
    """A point and its newest job."""

    #: from 1, in the order of the sweep
    number: int
    point: sweeps.Point
    #: None: not submitted yet
    job: jobs.Job | None

    @property
    def row(self) -> int | None:
        return None if self.job is None else self.job.row


def find(context: contexts.Context, reference: str) -> sweeps.StoredSweep:
    """Return the sweep `@3`, or the newest sweep with a name; NotFoundError."""
    with context.store.reading() as work:
        sweep = work.sweeps.find(reference)
    if sweep is None:
        raise errors.NotFoundError(
            f"sweep {reference!r} not found: `orchestrator sweep list` lists all sweeps"
        )
    return sweep


def summaries(context: contexts.Context, listed: Sequence[sweeps.StoredSweep]) -> list[Summary]:
    """Return these sweeps with their points counted by state."""
    rows = [sweep.row for sweep in listed]
    with context.store.reading() as work:
        groups = work.sweeps.groups(rows)
        totals = work.sweeps.totals(rows)
    return [
        Summary(
            sweep=sweep,
            totals=totals.get(sweep.row, sweeps.ResourceTotals()),
            groups=tuple(groups.get(sweep.row, [])),
        )
        for sweep in listed
    ]


def newest(context: contexts.Context, limit: int | None) -> list[Summary]:
    """Return the newest sweeps, newest first."""
    with context.store.reading() as work:
        listed = work.sweeps.newest(limit=limit)
    return summaries(context, listed)


def unfinished(sweep: sweeps.StoredSweep, groups: Sequence[sweeps.PointGroup]) -> int:
    """Return how many points have not ended; unsubmitted ones of a cancelled sweep have."""
    return sum(
        group.points
        for group in groups
        if (sweep.state == "open" if group.state is None else not ended(group))
    )


def ended(group: sweeps.PointGroup) -> bool:
    """Return whether these points have ended and are not deferred."""
    return group.state in jobs.TERMINAL and not group.is_deferred


def points(context: contexts.Context, sweep: sweeps.StoredSweep) -> list[PointJob]:
    """Return the points of a sweep in their order, each with its newest job."""
    with context.store.reading() as work:
        stored = work.sweeps.points(sweep.row)
        newest_jobs = {job.row: job for job in work.sweeps.jobs(sweep.row)}
    return [
        PointJob(
            number=row.number,
            point=point,
            job=None if row.job_row is None else newest_jobs[row.job_row],
        )
        for row, point in zip(stored, sweeps.points_of(stored), strict=True)
    ]


def baseline_first(context: contexts.Context, sweep: sweeps.StoredSweep) -> bool:
    """Return whether the other sizes start only after the smallest size completed."""
    with context.store.reading() as work:
        return work.sweeps.baseline_first(sweep.row)


def is_open(work: unit_of_work.UnitOfWork, row: int) -> bool:
    """Return whether points of a sweep may be submitted."""
    sweep = work.sweeps.get(row)
    return sweep is not None and sweep.state == "open"


def close(context: contexts.Context, sweep: sweeps.StoredSweep) -> tuple[int, list[jobs.Job]]:
    """Mark a sweep as cancelled, so that no more of its points are submitted.

    Returns the number of points that were never submitted, and the jobs that are not over.
    """
    with context.store.writing() as work:
        work.sweeps.set_state(sweep, "cancelled")
        groups = work.sweeps.groups([sweep.row]).get(sweep.row, [])
        live = [job for job in work.sweeps.jobs(sweep.row) if not job.is_over]
    return sum(group.points for group in groups if group.state is None), live


def prerequisites_of(
    work: unit_of_work.UnitOfWork, job_row: int, tasks: int
) -> sweeps.Prerequisites:
    """Return what the submission of a job depends on because of its sweep, if it has one."""
    point = work.sweeps.point_of(job_row)
    return sweeps.Prerequisites() if point is None else prerequisites(work, *point, tasks)


def prerequisites(
    work: unit_of_work.UnitOfWork, row: int, shape: str, tasks: int
) -> sweeps.Prerequisites:
    """Return what a submission of points of this shape depends on because of its sweep."""
    sweep = work.sweeps.get(row)
    assert sweep is not None, "sweeps are never deleted"
    after: tuple[str, ...] = ()
    if sweep.max_running is not None:
        after = sweeps.jobs_to_wait_for(work.sweeps.live_submissions(row), tasks, sweep.max_running)
    baseline: set[str] = set()
    if work.sweeps.baseline_first(row):
        texts = work.sweeps.shape_specs(row)
        baseline = sweeps.smallest_shapes(
            {key: specs.from_json(text) for key, text in texts.items()}
        )
    if not baseline or shape in baseline:
        return sweeps.Prerequisites(after_any=after)
    job_ids: list[str] = []
    unsent = failed = 0
    for group in work.sweeps.baseline_groups(row, baseline):
        if group.job_id is None:
            unsent += group.points
        elif group.state not in jobs.TERMINAL:
            job_ids.append(group.job_id)
        elif group.state is not jobs.JobState.COMPLETED:
            failed += group.points
    return sweeps.Prerequisites(
        after_any=after, after_ok=tuple(dict.fromkeys(job_ids)), unsent=unsent, failed=failed
    )
