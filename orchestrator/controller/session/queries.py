"""Questions that the database alone answers: lists, one job in full, what a reference means."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Sequence

from db import unit_of_work
from orchestrator import errors, jobs
from orchestrator.controller.refresh import freshness
from orchestrator.controller.session import clusters, contexts
from orchestrator.jobs import naming
from orchestrator.slurm import job_ids

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
        return _with_staleness(context, work.jobs.find(wanted))


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
        found = find_rows(work, reference)
    return _with_staleness(context, found)[0]


def find_rows(work: unit_of_work.UnitOfWork, reference: str) -> list[jobs.Job]:
    """Return the jobs that `@7`, `123`, `123_4`, `local-7` or a NAME means, newest first.

    `123` means all tasks of an array, `123_[2-5,8]` some of them, as do the rows `@6-9` and
    `@4,@6-7` of one submission. Jobs of several submissions (`token`) mean that the reference is
    ambiguous: several live jobs have the name, or two clusters have the job ID.
    """
    if reference.startswith("@"):
        row = naming.row_named(reference)
        job = None if row is None else work.jobs.get(row)
        return _jobs_of_rows(work, reference[1:]) if job is None else [job]
    master, tasks = _tasks_named(reference)
    # SLURM_JOB_ID of local-7 is 7, and so may be the ID of a job in Slurm.
    scheduler = "local" if reference.startswith("local-") else "slurm"
    by_id = work.jobs.find(jobs.JobQuery(job_ids=(master,), scheduler=scheduler, limit=None))
    if by_id:
        # Slurm reuses job IDs: on each cluster the newest job is meant.
        newest = {job.cluster: job.token for job in reversed(by_id)}
        named = [job for job in by_id if job.token == newest[job.cluster]]
        if tasks is None:
            return named
        # All tasks or none: part of a range would be a misunderstanding.
        chosen = [job for job in named if job.array_task_id in tasks]
        return chosen if {job.array_task_id for job in chosen} == tasks else []
    by_name = work.jobs.find(jobs.JobQuery(names=(reference,), limit=None))
    live = {job.token for job in by_name if not job.ended}
    tokens = live if len(live) > 1 else {job.token for job in by_name[:1]}
    return [job for job in by_name if job.token in tokens]


def _tasks_named(reference: str) -> tuple[str, set[int] | None]:
    """Return ID and tasks of `123_[2-5,8]`, or `123_[2-5,8%2]` as squeue prints it."""
    master, bracket, rest = reference.partition("_[")
    if not (bracket and rest.endswith("]") and master.removeprefix("local-").isdecimal()):
        return reference, None
    try:
        return master, set(job_ids.expand_tasks(rest.removesuffix("]").partition("%")[0]))
    except ValueError:
        return reference, None


def _jobs_of_rows(work: unit_of_work.UnitOfWork, text: str) -> list[jobs.Job]:
    """Return the jobs `6-9` or `4,@6-7` if all exist and belong to one submission."""
    try:
        rows = set(job_ids.expand_tasks(text.replace(",@", ",")))
    except ValueError:
        return []
    # `6-5` means no row, and SQLite's integers have 64 bits.
    first = work.jobs.get(min(rows)) if rows and max(rows) < 2**63 else None
    if first is None:
        return []
    mine = [job for job in work.jobs.of_submissions([first.token]) if job.row in rows]
    return mine if len(mine) == len(rows) else []


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
    with context.store.reading() as work:
        facts = clusters.known_facts(context)
        live_clusters = sorted({job.cluster for job in found if not job.settled})
        fresh = {cluster: freshness.of(work, cluster) for cluster in live_clusters}
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
