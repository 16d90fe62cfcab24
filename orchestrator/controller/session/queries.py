"""Questions that the database alone answers: lists, one job in full, what a reference means."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Sequence

from orchestrator import errors, jobs
from orchestrator.controller.refresh import freshness
from orchestrator.controller.session import clusters, contexts, references

#: `status` shows live jobs and those that ended within this time (design section 5).
RECENT = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Details:
    """All that is kept of one job."""

    job: jobs.Job
    submission: jobs.Submission
    attempts: Sequence[jobs.Attempt]
    events: Sequence[jobs.JobEvent]


def list_jobs(context: contexts.Context, wanted: jobs.JobQuery) -> tuple[list[jobs.Job], str]:
    """Return jobs, newest first, with `stale_since`, and what Slurm said when it did not answer."""
    with context.store.reading() as work:
        found = work.jobs.find(wanted)
    return _with_staleness(context, found)


def list_readable(
    context: contexts.Context, wanted: jobs.JobQuery
) -> tuple[list[jobs.Job], str, list[errors.DamagedRowError]]:
    """Return what list_jobs does, less the jobs that cannot be read, with an error for these."""
    try:
        return *list_jobs(context, wanted), []
    except errors.DamagedRowError as error:
        damage = [error]
    with context.store.reading() as work:
        parts = [work.jobs.find_rows(wanted)]
    found: list[jobs.Job] = []
    unreadable: list[int] = []
    while parts:
        part = parts.pop()
        try:
            with context.store.reading() as work:
                query = jobs.JobQuery(rows=part, limit=None)
                found += work.jobs.find(query) if part else []
        except errors.DamagedRowError as error:
            # All that can be read are found in a few steps for each one that cannot.
            half = len(part) // 2
            if half:
                parts += [part[:half], part[half:]]
            else:
                unreadable += part
                damage.append(error)
    found.sort(key=lambda job: job.row, reverse=True)
    told = ""
    with contextlib.suppress(errors.DamagedRowError):
        found, told = _with_staleness(context, found)
    if unreadable:
        rows = ", ".join(f"@{row}" for row in sorted(unreadable))
        context.reporter.warn(f"Left out, because they cannot be read: {rows}")
    return found, told, list({str(error): error for error in damage}.values())


def find(context: contexts.Context, reference: str) -> list[jobs.Job]:
    """Return the jobs that `123`, `123_4`, `@7` or a NAME can mean, newest first."""
    with context.store.reading() as work:
        found = references.find(work, reference)
    return _with_staleness(context, found)[0]


def details(context: contexts.Context, job: jobs.Job) -> Details:
    """Return all that is kept of the job."""
    with context.store.reading() as work:
        submission = work.jobs.submission_of(job.row)
        return Details(
            job=job,
            submission=submission,
            attempts=work.attempts.of_job(job.row),
            events=work.events.of_job(job.row),
        )


def arguments(details: Details) -> list[str] | None:
    """Return the arguments in which an array task differs from the others; none for others."""
    from orchestrator import specs
    from orchestrator.specs import arguments as task_arguments

    task = details.job.array_task_id
    if task is None:
        return None
    words = task_arguments.of_tasks(specs.from_json(details.submission.spec))
    return words[task] if words is not None and task < len(words) else None


def _with_staleness(
    context: contexts.Context, found: Sequence[jobs.Job]
) -> tuple[list[jobs.Job], str]:
    facts = clusters.known_facts(context)
    live_clusters = {job.cluster for job in found if not job.settled}
    fresh = {cluster: freshness.of(context, cluster) for cluster in sorted(live_clusters)}
    here = {clusters.machine_cluster()}
    if facts is not None:
        here.add(facts.cluster)
    told = [
        job if job.settled else _stale(job, fresh[job.cluster], here=job.cluster in here)
        for job in found
    ]
    failures = [state.error for state in fresh.values() if state.failing_since and state.error]
    return told, failures[0] if failures else ""


def _stale(job: jobs.Job, fresh: freshness.Freshness, *, here: bool) -> jobs.Job:
    """Return the job with `stale_since` where its state is not confirmed by newer answers.

    That is: Slurm does not answer; Slurm answers and does not know the job; the job belongs to
    another cluster than the one that is asked from this host.
    """
    if fresh.failing_since is not None:
        since = fresh.good_at or fresh.failing_since
        return dataclasses.replace(job, stale_since=max(since, job.observed_at or since))
    if job.missing_since is not None:
        return dataclasses.replace(job, stale_since=job.missing_since)
    if not here:
        return dataclasses.replace(job, stale_since=fresh.good_at or job.created_at)
    return job
