"""Read sweeps: find one, count its points by state, and find what they depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from db import unit_of_work
from orchestrator import errors, jobs, specs, sweeps
from orchestrator.controller.planning import agreement
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
    sweep: sweeps.StoredSweep
    totals: sweeps.ResourceTotals
    groups: Sequence[sweeps.PointGroup]

    @property
    def state(self) -> str:
        """The stored state, but "ended" for an open sweep of which all points are over."""
        is_over = self.sweep.state == "open" and all(group.is_over for group in self.groups)
        return "ended" if is_over else self.sweep.state


def find(context: contexts.Context, reference: str) -> sweeps.StoredSweep:
    """Return the sweep `@3`, or the newest sweep with a name; NotFoundError."""
    with context.store.reading() as work:
        sweep = work.sweeps.find(reference)
    if sweep is None:
        raise errors.NotFoundError(
            f"sweep {reference!r} not found: `orchestrator sweep list` lists all sweeps"
        )
    return sweep


def summaries(work: unit_of_work.UnitOfWork, listed: Sequence[sweeps.StoredSweep]) -> list[Summary]:
    rows = [sweep.row for sweep in listed]
    groups, totals = work.sweeps.groups(rows), work.sweeps.totals(rows)
    return [
        Summary(
            sweep=sweep,
            totals=totals.get(sweep.row, sweeps.ResourceTotals()),
            groups=groups.get(sweep.row, ()),
        )
        for sweep in listed
    ]


def unfinished(sweep: sweeps.StoredSweep, groups: Sequence[sweeps.PointGroup]) -> int:
    """Return how many points have not ended; unsubmitted ones of a cancelled sweep have."""
    return sum(
        group.points
        for group in groups
        if (sweep.state == "open" if group.state is None else not ended(group))
    )


def ended(group: sweeps.PointGroup) -> bool:
    return group.state in jobs.TERMINAL and not group.is_deferred


def points(context: contexts.Context, sweep: sweeps.StoredSweep) -> list[sweeps.StoredPoint]:
    """Return the points of a sweep in their order, each with its newest job."""
    with context.store.reading() as work:
        return work.sweeps.points(sweep.row)


def is_open(work: unit_of_work.UnitOfWork, row: int) -> bool:
    sweep = work.sweeps.get(row)
    return sweep is not None and sweep.state == "open"


def close(context: contexts.Context, sweep: sweeps.StoredSweep) -> tuple[int, list[jobs.Job]]:
    """Mark a sweep as cancelled, so that no more of its points are submitted.

    Returns the number of points that were never submitted, and the jobs that are not over.
    """

    def not_over() -> list[jobs.Job]:
        with context.store.reading() as work:
            return [job for job in work.sweeps.jobs(sweep.row) if not job.is_over]

    before = f"Submit no more points of sweep {sweep.name} (@{sweep.row})"
    agreement.on_change(context, "Cancel", not_over, before=before)
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
    if sweep.baseline_first:
        texts = work.sweeps.shape_specs(row)
        baseline = sweeps.smallest_shapes(
            {key: specs.from_json(text) for key, text in texts.items()}
        )
    if not baseline or shape in baseline:
        return sweeps.Prerequisites(after_any=after)
    job_ids: list[str] = []
    unsent = failed = 0
    for job_id, state, count in work.sweeps.baseline_groups(row, baseline):
        if job_id is None:
            unsent += count
        elif state not in jobs.TERMINAL:
            job_ids.append(job_id)
        elif state is not jobs.JobState.COMPLETED:
            failed += count
    return sweeps.Prerequisites(
        after_any=after, after_ok=tuple(dict.fromkeys(job_ids)), unsent=unsent, failed=failed
    )
