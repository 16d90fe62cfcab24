"""Questions that the database alone answers: lists, one job in full, what a reference means."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.controller import context as contexts
from orchestrator.controller import refresh, unit_of_work

#: `status` shows live jobs and those that ended within this time (design section 5).
RECENT = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Details:
    """All that is kept of one job."""

    job: jobs.Job
    submission: jobs.Submission
    attempts: Sequence[jobs.Attempt]
    events: Sequence[jobs.JobEvent]


def list_jobs(
    context: contexts.Context, wanted: unit_of_work.JobQuery
) -> tuple[list[jobs.Job], refresh.Refreshed | None]:
    """Return jobs, newest first, with `stale_since` where Slurm does not answer now."""
    with context.store.reading() as work:
        found = work.jobs(wanted)
    return _with_staleness(context, found)


def find(context: contexts.Context, reference: str) -> list[jobs.Job]:
    """Return the jobs that `123`, `123_4`, `@7` or a NAME can mean, newest first."""
    with context.store.reading() as work:
        found = work.find(reference)
    return _with_staleness(context, found)[0]


def details(context: contexts.Context, job: jobs.Job) -> Details:
    """Return all that is kept of the job."""
    with context.store.reading() as work:
        submission = work.submission_of(job.row)
        assert submission is not None, "each job belongs to one (foreign key)"
        return Details(
            job=job,
            submission=submission,
            attempts=work.attempts(job.row),
            events=work.events(job.row),
        )


def _with_staleness(
    context: contexts.Context, found: Sequence[jobs.Job]
) -> tuple[list[jobs.Job], refresh.Refreshed | None]:
    facts = contexts.known_facts(context)
    if facts is None:
        return list(found), None
    fresh = refresh.freshness(context, facts.cluster)
    if fresh.failing_since is None:
        return list(found), fresh
    since = fresh.good_at or fresh.failing_since
    return [
        job if job.settled or job.cluster != facts.cluster else _stale(job, since) for job in found
    ], fresh


def _stale(job: jobs.Job, since: datetime.datetime) -> jobs.Job:
    confirmed_at = max(since, job.observed_at or since)
    return dataclasses.replace(job, stale_since=confirmed_at)
