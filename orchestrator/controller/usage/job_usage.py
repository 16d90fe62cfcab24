"""How many GPU-hours and core-hours jobs have used, from the database alone."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.controller.session import contexts
from orchestrator.usage import totals


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobUsage:
    """Usage, grouped by some keys."""

    usages: tuple[totals.Usage, ...]
    #: of all groups, in which a job with several labels counts once
    total: totals.Usage | None
    #: starts without a known end
    endless: int


def of(
    context: contexts.Context,
    query: jobs.JobQuery,
    keys: Sequence[str],
    *,
    since: datetime.datetime | None = None,
    until: datetime.datetime | None = None,
) -> JobUsage:
    """Return what the selected jobs have used between two times, grouped by keys of totals.KEYS.

    Running jobs count up to now.
    """
    query = dataclasses.replace(query, live_or_since=since, limit=None)
    with context.store.reading() as work:
        by_row = {job.row: job for job in work.jobs.find(query)}
        attempts = work.attempts.of_jobs(list(by_row))
    now = context.clock.now()
    starts = [
        _start(by_row[row], attempt, now)
        for row, of_job in attempts.items()
        for attempt in of_job
        if _ran_between(attempt, since, until)
    ]
    known = [start for start in starts if start is not None]
    usages = totals.grouped(known, keys, since=since, until=until)
    total = totals.grouped(known, (), since=since, until=until)
    return JobUsage(
        usages=tuple(usages),
        total=total[0] if total else None,
        endless=len(starts) - len(known),
    )


def _ran_between(
    attempt: jobs.Attempt, since: datetime.datetime | None, until: datetime.datetime | None
) -> bool:
    """Return whether an attempt ran between two times; its end may be unknown or still to come."""
    if attempt.started_at is None or (until is not None and attempt.started_at >= until):
        return False
    return since is None or attempt.ended_at is None or attempt.ended_at >= since


def _start(job: jobs.Job, attempt: jobs.Attempt, now: datetime.datetime) -> totals.Start | None:
    assert attempt.started_at is not None
    is_running = attempt.number == job.attempt and job.state not in jobs.TERMINAL
    ended_at = attempt.ended_at or (now if is_running else None)
    if ended_at is None:
        return None
    return totals.Start(
        row=job.row,
        words={
            "job": job.job_id or f"@{job.row}",
            "name": job.name,
            "sweep": job.sweep or "",
            "partition": job.partition or "",
            "account": job.account or "",
            "cluster": job.cluster,
        },
        labels=job.labels,
        state=attempt.state,
        started_at=attempt.started_at,
        # The clocks of this host and of slurmctld may differ.
        ended_at=max(ended_at, attempt.started_at),
        nodes=job.nodes,
        gpus=job.gpus,
        cpus=job.cpus,
    )
