"""Questions about sweeps: which one is meant, how far each is, what each point does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator import errors, jobs, sweeps
from orchestrator.controller import context as contexts
from orchestrator.controller import sweep_rows

#: The program, the node or a limit ended it; neither a person nor a loss.
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
    """How far a sweep is."""

    sweep: sweep_rows.StoredSweep
    asked: sweeps.Asked
    groups: tuple[sweep_rows.PointGroup, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointJob:
    """A point and its newest job."""

    #: from 1, in the order of the sweep
    number: int
    point: sweeps.Point
    #: none: nothing was submitted of it
    job: jobs.Job | None

    @property
    def row(self) -> int | None:
        return None if self.job is None else self.job.row


def find(context: contexts.Context, reference: str) -> sweep_rows.StoredSweep:
    """Return the sweep that `@3` or NAME means, of a name the newest; NotFoundError."""
    with context.store.reading() as work:
        found = work.sweeps.named(reference)
    if found is None:
        raise errors.NotFoundError(
            f"no sweep {reference!r} here; `orchestrator sweep list` lists what is known"
        )
    return found


def summaries(context: contexts.Context, found: Sequence[sweep_rows.StoredSweep]) -> list[Summary]:
    """Return how far these sweeps are."""
    rows = [sweep.row for sweep in found]
    with context.store.reading() as work:
        groups = work.sweeps.groups(rows)
        asked = work.sweeps.asked(rows)
    return [
        Summary(
            sweep=sweep,
            asked=asked.get(sweep.row, sweeps.Asked()),
            groups=tuple(groups.get(sweep.row, [])),
        )
        for sweep in found
    ]


def newest(context: contexts.Context, limit: int | None) -> list[Summary]:
    """Return the newest sweeps, and how far they are."""
    with context.store.reading() as work:
        found = work.sweeps.newest(limit=limit)
    return summaries(context, found)


def unfinished(sweep: sweep_rows.StoredSweep, groups: Sequence[sweep_rows.PointGroup]) -> int:
    """Return how many points have not ended; those that were given up count as ended."""
    return sum(
        group.points
        for group in groups
        if (sweep.state == "open" if group.state is None else not ended(group))
    )


def ended(group: sweep_rows.PointGroup) -> bool:
    """Return whether nothing happens to these points any more by itself."""
    return group.state in jobs.TERMINAL and not group.waits_for_room


def points(context: contexts.Context, sweep: sweep_rows.StoredSweep) -> list[PointJob]:
    """Return the points of a sweep in their order, each with its newest job."""
    with context.store.reading() as work:
        found = work.sweeps.points(sweep.row)
        newest = {job.row: job for job in work.sweeps.jobs(sweep.row)}
    return [
        PointJob(
            number=one.number,
            point=one.point,
            job=None if one.job_row is None else newest[one.job_row],
        )
        for one in found
    ]


def baseline_first(context: contexts.Context, sweep: sweep_rows.StoredSweep) -> bool:
    """Return whether the smallest size goes first, and the rest after its good end."""
    with context.store.reading() as work:
        return work.sweeps.baseline_first(sweep.row)


def close(context: contexts.Context, sweep: sweep_rows.StoredSweep) -> tuple[int, list[jobs.Job]]:
    """Let nothing more of a sweep be submitted.

    Returns how many points never were, and the jobs of which more is to come.
    """
    with context.store.writing() as work:
        work.sweeps.set_state(sweep, "cancelled")
        groups = work.sweeps.groups([sweep.row]).get(sweep.row, [])
        live = [job for job in work.sweeps.jobs(sweep.row) if not job.is_over]
    return sum(group.points for group in groups if group.state is None), live
