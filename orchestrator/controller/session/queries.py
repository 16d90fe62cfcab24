"""Queries of the database: lists of jobs, one job in full, the meaning of a reference."""

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
from orchestrator.toml import schema

#: `status` shows live jobs and those that ended within this time
RECENT = datetime.timedelta(days=1)
#: Newest jobs whose names may be suggested for one that does not exist.
_NAMES_SEARCHED = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Details:
    job: jobs.Job
    submission: jobs.Submission
    attempts: Sequence[jobs.Attempt]
    events: Sequence[jobs.JobEvent]


def list_jobs(context: contexts.Context, query: jobs.JobQuery) -> tuple[list[jobs.Job], str]:
    """Return jobs, newest first, with `stale_since`, and Slurm's error if it did not answer."""
    with context.store.reading() as work:
        return with_staleness(context, work.jobs.find(query))


def list_readable(
    context: contexts.Context, query: jobs.JobQuery
) -> tuple[list[jobs.Job], str, list[errors.DamagedRowError]]:
    """Do the same, but leave out damaged rows and return an error for each."""
    try:
        return *list_jobs(context, query), []
    except errors.DamagedRowError as error:
        damage = [error]
    with context.store.reading() as work:
        ranges = [work.jobs.find_rows(query)]
    readable: list[jobs.Job] = []
    unreadable: list[int] = []
    # Halve each range with a damaged row until that row is alone.
    while ranges:
        rows = ranges.pop()
        try:
            with context.store.reading() as work:
                some = jobs.JobQuery(rows=rows, limit=None)
                readable += work.jobs.find(some) if rows else []
        except errors.DamagedRowError as error:
            half = len(rows) // 2
            if half:
                ranges += [rows[:half], rows[half:]]
            else:
                unreadable += rows
                damage.append(error)
    readable.sort(key=lambda job: job.row, reverse=True)
    slurm_error = ""
    with contextlib.suppress(errors.DamagedRowError):
        readable, slurm_error = with_staleness(context, readable)
    if unreadable:
        names = ", ".join(f"@{row}" for row in sorted(unreadable))
        context.reporter.warn(f"Left out, because they cannot be read: {names}")
    return readable, slurm_error, list({str(error): error for error in damage}.values())


def find(context: contexts.Context, reference: str) -> list[jobs.Job]:
    """Return the jobs that `123`, `123_4`, `@7` or a NAME can mean, newest first."""
    with context.store.reading() as work:
        rows = find_rows(work, reference)
    return with_staleness(context, rows)[0]


def nearest_name(context: contexts.Context, word: str) -> str:
    """Return the name of a recent job that is nearest to a word; "" if none is near."""
    try:
        with context.store.reading() as work:
            newest = work.jobs.find(jobs.JobQuery(limit=_NAMES_SEARCHED))
    except errors.DamagedRowError:
        return ""
    return schema.did_you_mean(word, {job.name for job in newest})


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
    with context.store.reading() as work:
        submission = work.jobs.submission_of(job.row)
        return Details(
            job=job,
            submission=submission,
            attempts=work.attempts.of_job(job.row),
            events=work.events.of_job(job.row),
        )


def arguments(details: Details) -> list[str] | None:
    """Return the arguments in which an array task differs from the others; None: no array."""
    from orchestrator import specs
    from orchestrator.specs import arguments as task_arguments

    task = details.job.array_task_id
    if task is None:
        return None
    words = task_arguments.of_tasks(specs.from_json(details.submission.spec))
    return words[task] if words is not None and task < len(words) else None


def with_staleness(
    context: contexts.Context, rows: Sequence[jobs.Job]
) -> tuple[list[jobs.Job], str]:
    """Return the jobs with `stale_since`, and Slurm's error if it did not answer."""
    with context.store.reading() as work:
        facts = clusters.known_facts(context)
        live_clusters = sorted({job.cluster for job in rows if not job.settled})
        fresh = {cluster: freshness.of(work, cluster) for cluster in live_clusters}
    local_clusters = {clusters.machine_cluster(), *([facts.cluster] if facts else [])}
    with_staleness = [
        job
        if job.settled
        else _stale(job, fresh[job.cluster], is_askable=job.cluster in local_clusters)
        for job in rows
    ]
    failures = (state.last_error for state in fresh.values() if state.failing_since)
    return with_staleness, next(filter(None, failures), "")


def _stale(job: jobs.Job, fresh: freshness.Freshness, *, is_askable: bool) -> jobs.Job:
    """Return the job, with `stale_since` if its state is not confirmed.

    That is if Slurm does not answer or does not show the job, or if the job belongs to a cluster
    that this host cannot ask.
    """
    if fresh.failing_since is not None:
        since = fresh.last_good_squeue_at or fresh.failing_since
        return dataclasses.replace(job, stale_since=max(since, job.observed_at or since))
    if job.missing_since is not None:
        return dataclasses.replace(job, stale_since=job.missing_since)
    if not is_askable:
        return dataclasses.replace(job, stale_since=fresh.last_good_squeue_at or job.created_at)
    return job
