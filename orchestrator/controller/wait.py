"""wait: look again and again, sharing one squeue an interval with all other waiters."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from orchestrator import jobs, patterns
from orchestrator.controller import context as contexts
from orchestrator.controller import ingest, refresh

#: A job that ended waits this long for the details of its accounting row.
DETAILS_SECONDS = 30.0


def wait(
    context: contexts.Context,
    rows: Sequence[int],
    *,
    timeout_seconds: float | None = None,
    changed: Callable[[jobs.Job], None] = lambda job: None,
) -> list[jobs.Job]:
    """Return the jobs once all have ended, or as they are when the time is up.

    `changed` is told each new state. Their logs are read on the way, so that the metrics are
    there when this returns.
    """
    begun = context.clock()
    seen: dict[int, jobs.JobState] = {}
    ended: dict[int, datetime.datetime] = {}
    shipped = patterns.load_shipped()
    while True:
        fresh = refresh.refresh(context)
        found = _jobs(context, rows)
        now = context.clock()
        for job in found:
            if seen.get(job.row) is not job.state:
                seen[job.row] = job.state
                changed(job)
            if job.state in jobs.TERMINAL:
                ended.setdefault(job.row, now)
            else:
                ended.pop(job.row, None)
            ingest.ingest(context, job, shipped)
        if all(_done(job, ended, now) for job in found):
            return found
        waited_seconds = (now - begun).total_seconds()
        if timeout_seconds is not None and waited_seconds >= timeout_seconds:
            return found
        context.sleep(_pause_seconds(context, fresh, now))


def _jobs(context: contexts.Context, rows: Sequence[int]) -> list[jobs.Job]:
    with context.store.reading() as work:
        return [job for row in rows if (job := work.job(row)) is not None]


def _done(job: jobs.Job, ended: dict[int, datetime.datetime], now: datetime.datetime) -> bool:
    if job.state not in jobs.TERMINAL:
        return False
    return job.settled or (now - ended[job.row]).total_seconds() >= DETAILS_SECONDS


def _pause_seconds(
    context: contexts.Context, fresh: refresh.Refreshed, now: datetime.datetime
) -> float:
    """Return how long until the next answer of Slurm is due, so that nobody asks in between."""
    floor = float(context.profile.poll_floor_seconds)
    if fresh.good_at is None:
        return floor
    due = floor - (now - fresh.good_at).total_seconds()
    return min(max(due, 0.2), floor)
