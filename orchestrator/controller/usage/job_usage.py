"""How many GPU-hours and core-hours jobs have used, from the database alone."""

from __future__ import annotations

import dataclasses
import datetime

from orchestrator import jobs
from orchestrator.controller.session import contexts
from orchestrator.usage import totals


def starts(
    context: contexts.Context,
    query: jobs.JobQuery,
    *,
    since: datetime.datetime | None = None,
    until: datetime.datetime | None = None,
) -> tuple[list[totals.Start], int]:
    """Return the starts of the selected jobs between two times, and how many have no known end.

    Running jobs count up to now.
    """
    query = dataclasses.replace(query, live_or_since=since, limit=None)
    with context.store.reading() as work:
        by_row = {job.row: job for job in work.jobs.find(query)}
        attempts = work.attempts.of_jobs(list(by_row))
    now = context.clock.now()
    known, endless = [], 0
    for row, attempt in [(row, attempt) for row, of_job in attempts.items() for attempt in of_job]:
        job, started_at = by_row[row], attempt.started_at
        if started_at is None or (until is not None and started_at >= until):
            continue
        is_running = attempt.number == job.attempt and job.state not in jobs.TERMINAL
        ended_at = attempt.ended_at or (now if is_running else None)
        if ended_at is None:
            endless += 1
        elif since is None or ended_at >= since:
            # The clocks of this host and of slurmctld may differ.
            ended_at = max(ended_at, started_at)
            known.append(
                totals.Start(job=job, state=attempt.state, started_at=started_at, ended_at=ended_at)
            )
    return known, endless
