"""How much jobs have used: from the database alone, those that run as far as they are."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.controller.session import contexts
from orchestrator.usage import totals


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """Usage by the keys that were asked for."""

    usages: tuple[totals.Usage, ...]
    #: all of it; of a job with several labels once
    total: totals.Usage | None
    #: starts whose end nobody knows
    endless: int


def of(
    context: contexts.Context,
    wanted: jobs.JobQuery,
    keys: Sequence[str],
    *,
    since: datetime.datetime | None = None,
    until: datetime.datetime | None = None,
) -> Told:
    """Return what the jobs of a query have used between two moments, by keys of usage.KEYS."""
    with context.store.reading() as work:
        # A start that had not ended by then is of a job that had not, or that is live.
        found = work.jobs.find(dataclasses.replace(wanted, live_or_since=since, limit=None))
        starts = work.attempts.started([job.row for job in found], since=since, until=until)
    owners = {job.row: job for job in found}
    now = context.clock.now()
    runs, endless = [], 0
    for row, attempt in starts:
        run = _run(owners[row], attempt, now)
        if run is None:
            endless += 1
        else:
            runs.append(run)
    told = totals.told_by(runs, keys, since=since, until=until)
    total = totals.told_by(runs, (), since=since, until=until)
    return Told(usages=tuple(told), total=total[0] if total else None, endless=endless)


def _run(job: jobs.Job, attempt: jobs.Attempt, now: datetime.datetime) -> totals.Run | None:
    assert attempt.started_at is not None
    runs = attempt.number == job.attempt and job.state not in jobs.TERMINAL
    ended_at = attempt.ended_at or (now if runs else None)
    if ended_at is None:
        return None
    return totals.Run(
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
