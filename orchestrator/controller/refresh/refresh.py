"""A refresh: one squeue for all jobs, sacct for those that it does not list, then exit records."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, jobs, tracking
from orchestrator.controller.refresh import evidence, freshness, slurm_queries
from orchestrator.controller.session import clock_check, clusters, contexts
from orchestrator.controller.submission import log_paths
from orchestrator.files import run_folder

#: A refresh of local jobs reads some files.
LOCAL_FLOOR_SECONDS = 0.5
#: Jobs that are decided and stored at a time: the evidence about 5,000 jobs takes 40 MiB.
JOBS_AT_ONCE = 1000
#: How long settled tracked jobs are searched for in squeue: slurmctld forgets after MinJobAge.
REOPENED_WITHIN = datetime.timedelta(days=1)
#: Environments of attempts are read for jobs that ended within this time, so many at a time.
READ_WITHIN, MAX_READ = datetime.timedelta(days=1), 5000
#: Older failures are explained only by `explain`.
EXPLAINED_WITHIN = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Whether a refresh queries one scheduler."""

    context: contexts.Context
    floor_seconds: float
    is_needed: bool
    #: the stored facts of the cluster
    facts: clusters.Facts | None
    #: the result of the last refresh
    last: freshness.Freshness


def refresh(
    context: contexts.Context, *, floor_seconds: float | None = None, expecting: bool = False
) -> freshness.Freshness:
    """Update the live jobs, with at most one squeue per interval over all processes.

    `expecting`: query Slurm without live jobs too, because something is to be submitted. A Slurm
    that does not answer is no error: states stay, and `failing_since` is set.
    """
    return run(*plans(context, floor_seconds=floor_seconds, expecting=expecting))


def plans(
    context: contexts.Context, *, floor_seconds: float | None, expecting: bool
) -> tuple[Plan, Plan]:
    """Return the plans for the local scheduler and for Slurm, in one read transaction."""
    local_floor = None if floor_seconds is None else min(floor_seconds, LOCAL_FLOOR_SECONDS)
    local, slurm = context.with_scheduler("local"), context.with_scheduler("slurm")
    with context.store.reading() as work:
        return _plan(work, local, local_floor), _plan(work, slurm, floor_seconds, expecting)


def run(local_plan: Plan, slurm_plan: Plan) -> freshness.Freshness:
    local, slurm = _run(local_plan), _run(slurm_plan)
    return dataclasses.replace(
        slurm, asked=slurm.asked or local.asked, changed=slurm.changed + local.changed
    )


def refresh_one(
    context: contexts.Context, *, floor_seconds: float | None = None
) -> freshness.Freshness:
    with context.store.reading() as work:
        plan = _plan(work, context, floor_seconds)
    return _run(plan)


def _plan(
    work: unit_of_work.UnitOfWork,
    context: contexts.Context,
    floor_seconds: float | None,
    expecting: bool = False,
) -> Plan:
    usual = LOCAL_FLOOR_SECONDS if context.is_local else float(context.profile.poll_floor_seconds)
    floor = usual if floor_seconds is None else floor_seconds
    # Slurm is queried before something is submitted to it again.
    scheduler = "local" if context.is_local else "slurm"
    due = jobs.JobQuery(due=context.clock.now(), scheduler=scheduler, limit=1)
    known = clusters.known_facts(context)
    # Without live jobs Slurm has nothing to report. A user who insists (floor 0) gets an answer
    # anyway, so that a job which was requeued by hand after its end is seen.
    is_idle = known is None or (context.is_local and not context.machine.spool.queue())
    return Plan(
        context=context,
        floor_seconds=floor,
        is_needed=expecting or bool(work.jobs.find(due)) or (floor == 0 and not is_idle),
        facts=known,
        last=freshness.Freshness() if known is None else freshness.of(work, known.cluster),
    )


def _run(plan: Plan) -> freshness.Freshness:
    context = plan.context
    if not plan.is_needed:
        return plan.last
    try:
        facts = clusters.facts(context, known=plan.facts)
    except errors.SlurmError as exc:
        return freshness.Freshness(failing_since=context.clock.now(), last_error=str(exc))
    # The threads of the web server refresh independently.
    holder = f"{socket.gethostname()}:{os.getpid()}.{threading.get_native_id()}"
    now = context.clock.now()
    with context.store.writing() as work:
        freshness.drop_dead_claim(work, facts.cluster)
        if not work.refreshes.claim(facts.cluster, now, plan.floor_seconds, holder):
            last = freshness.of(work, facts.cluster)
            return dataclasses.replace(last, busy=last.holder not in (None, holder))
        # Read after the claim: what another process stored before it is not decided again.
        steady = context.steady_jobs.setdefault(facts.cluster, {})
        stored = _read(work, facts, now, {row: job for row, (job, _) in steady.items()})
    try:
        return _query(context, facts, stored, holder, force=plan.floor_seconds == 0)
    except BaseException:
        # Ctrl-C, a full disk: no process would query Slurm before the claim expires.
        with contextlib.suppress(errors.DatabaseError), context.store.writing() as work:
            work.refreshes.finish(facts.cluster, holder=holder)
        raise


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Stored:
    installation_id: str
    live: list[jobs.Job]
    #: settled jobs that ended so recently that squeue may list them
    recent: list[jobs.Job]
    #: settled jobs that squeue lists only by their ID, and that may be requeued
    tracked: list[jobs.Job]
    #: rows of array tasks for which a cancellation was requested
    cancel_requested: set[int]
    #: when sacct last succeeded, and why it is not called now; ""
    sacct_good_at: datetime.datetime | None
    sacct_error: str


def _read(
    work: unit_of_work.UnitOfWork,
    facts: clusters.Facts,
    now: datetime.datetime,
    known: Mapping[int, jobs.Job],
) -> _Stored:
    live = work.jobs.live(facts.cluster, known)
    since = now - datetime.timedelta(seconds=facts.min_job_age_seconds)
    settled = jobs.JobQuery(settled=True, cluster=facts.cluster, since=since, limit=None)
    tracked = dataclasses.replace(settled, tracked=True, since=now - REOPENED_WITHIN)
    tasks = [job.row for job in live if job.array_task_id is not None]
    return _Stored(
        installation_id=work.settings.installation_id(),
        live=live,
        recent=work.jobs.find(settled),
        tracked=work.jobs.find(tracked),
        cancel_requested=work.events.cancel_requested(tasks),
        sacct_good_at=work.refreshes.get(facts.cluster).last_good_sacct_at,
        sacct_error=slurm_queries.sacct_pause(work, facts.cluster, now),
    )


def _query(
    context: contexts.Context,
    facts: clusters.Facts,
    stored: _Stored,
    holder: str,
    *,
    force: bool,
) -> freshness.Freshness:
    context = clock_check.checked(context)
    observed_at = context.clock.now()
    try:
        known = [*stored.live, *stored.tracked]
        queue = slurm_queries.query_queue(context, known, stored.installation_id)
        reopened = _reopened(context, queue, stored)
        reopened += [job for job in stored.tracked if tracking.is_news(job, queue.of(job))]
        selected = [*stored.live, *reopened]
        accounts = slurm_queries.query_sacct(
            context,
            facts,
            selected,
            queue,
            observed_at,
            good_at=stored.sacct_good_at,
            error=stored.sacct_error,
            force=force,
        )
        collector = evidence.Collector(
            context=context,
            facts=facts,
            queue=queue,
            accounts=accounts,
            observed_at=observed_at,
            cancel_requested=stored.cancel_requested,
        )
        before = context.steady_jobs.pop(facts.cluster, {})
        steady = {
            job.row: before[job.row]
            for job in selected
            if before.get(job.row) == (job, queue.of(job))
        }
        selected = [job for job in selected if job.row not in steady]
        # Before anything is stored: a failure is one of the whole refresh.
        for job in selected:
            collector.query_renamed(job)
    except errors.SlurmError as exc:
        return _store_failure(context, facts.cluster, holder, stored.live, str(exc))
    changed = ended = 0
    unread: list[jobs.UnreadEnvironment] = []
    for start in range(0, max(len(selected), 1), JOBS_AT_ONCE):
        part = selected[start : start + JOBS_AT_ONCE]
        decided = [(job, tracking.decide(job, collector.evidence(job))) for job in part]
        with context.store.writing() as work:
            if start == 0:
                work.jobs.confirm(steady.keys(), observed_at)
            changed += _store(work, decided, observed_at)
            if start + JOBS_AT_ONCE >= len(selected):
                work.refreshes.finish(
                    facts.cluster,
                    holder=holder,
                    squeue_at=observed_at,
                    sacct_at=observed_at if accounts.succeeded else None,
                )
                fresh = freshness.of(work, facts.cluster)
                # Without a started job there is nothing to read.
                if any(job.started_at for job in [*stored.live, *stored.recent]) or changed:
                    since = context.clock.now() - READ_WITHIN
                    unread = work.environments.unread(facts.cluster, since, MAX_READ)
                # Also of an earlier, interrupted refresh.
                unexplained = work.jobs.find_rows(
                    jobs.JobQuery(
                        cluster=facts.cluster,
                        unexplained_since=context.clock.now() - EXPLAINED_WITHIN,
                        limit=None,
                    )
                )
        ended += sum(
            job.state not in jobs.TERMINAL and transition.changes.get("state") in jobs.TERMINAL
            for job, transition in decided
        )
        steady |= {
            job.row: (job, queue.of(job))
            for job, transition in decided
            if _is_unchanged(transition) and tracking.is_steady(job, queue.of(job))
        }
        # Slurm has the job after all, or refused it for good: it is not submitted again.
        sent = [job for job, each in decided if job.resend_at and "resend_at" in each.changes]
        for run_dir in sorted({job.run_dir for job in sent}):
            run_folder.RunFolder(Path(run_dir)).drop_environment()
    context.steady_jobs[facts.cluster] = steady
    if context.configuration.nodes.exclude == "auto" and not context.is_local:
        # `status` loads few modules.
        from orchestrator.controller.nodes import known_nodes

        known_nodes.renew(context, facts.cluster)
    if unread:
        from orchestrator.controller.environments import attempts

        attempts.store(context, unread)
    if unexplained:
        # It reads logs, so it is imported only for failures.
        from orchestrator.controller.diagnosis import explanations

        explanations.store_causes(context, unexplained)
    return dataclasses.replace(
        fresh, asked=True, changed=changed, ended=ended, sacct_error=accounts.error
    )


def _reopened(
    context: contexts.Context, queue: slurm_queries.SqueueRows, stored: _Stored
) -> list[jobs.Job]:
    """Return settled jobs of which squeue has news: requeued by hand, or found after all."""
    known = {(job.token, job.array_task_id or 0) for job in [*stored.live, *stored.recent]}
    tokens = {token for token, task in queue.by_token if (token, task) not in known}
    settled = {job.row: job for job in stored.recent}
    if tokens:
        with context.store.reading() as work:
            older = work.jobs.of_submissions(sorted(tokens))
        settled |= {job.row: job for job in older if job.settled}
    return [
        job
        for job in settled.values()
        if job.tracked_name is None and tracking.is_news(job, queue.of(job))
    ]


def _store(
    work: unit_of_work.UnitOfWork,
    decided: Sequence[tuple[jobs.Job, tracking.Transition]],
    observed_at: datetime.datetime,
) -> int:
    """Store the transitions in a few statements; return the number of jobs with new events.

    A row that another process changed meanwhile stays as it is: the next refresh decides it again.
    """
    submission_of = functools.cache(work.jobs.submission)
    unchanged, changes = [], []
    for job, transition in decided:
        if _is_unchanged(transition):
            unchanged.append(job.row)
        elif transition.events or transition.changes:
            paths = _log_paths(job, transition, submission_of)
            changes.append((job.row, {**transition.changes, **paths}, job.version))
    work.jobs.confirm(unchanged, observed_at)
    stored = work.jobs.change_many(changes)
    kept = [(job, transition) for job, transition in decided if job.row in stored]
    earlier = {
        (row, attempt.number): attempt
        for row, attempts in work.attempts.of_jobs(stored).items()
        for attempt in attempts
    }
    work.attempts.put(
        (job.row, tracking.with_exact_exit_code(earlier.get((job.row, attempt.number)), attempt))
        for job, transition in kept
        for attempt in transition.attempts
    )
    work.events.add_many((job.row, event) for job, each in kept for event in each.events)
    return sum(bool(transition.events) for _, transition in kept)


def _is_unchanged(transition: tracking.Transition) -> bool:
    return not transition.events and transition.changes.keys() == {"observed_at"}


def _log_paths(
    job: jobs.Job,
    transition: tracking.Transition,
    submission_of: Callable[[str], jobs.Submission | None],
) -> dict[str, object]:
    """Return the paths of the logs of a job that has a new ID or, as an array task, started.

    %j in the path of an array task's log becomes known with its start. Slurm itself reports the
    path for a tracked job.
    """
    after = dataclasses.replace(job, **transition.changes)  # type: ignore[arg-type]
    is_new = after.job_id is not None and after.job_id != job.job_id
    has_started = after.array_task_id is not None and job.started_at is None is not after.started_at
    if job.tracked_name is not None or not (is_new or has_started):
        return {}
    submission = submission_of(job.token)
    if submission is None:
        return {}
    raw_job_id = None if after.started_at is None else after.raw_job_id
    patterns = log_paths.LogPaths.of_submission(submission)
    paths = patterns.paths(str(after.job_id), raw_job_id)
    return {field: path for field, path in paths.items() if path}


def _store_failure(
    context: contexts.Context, cluster: str, holder: str, live: Sequence[jobs.Job], error: str
) -> freshness.Freshness:
    with context.store.writing() as work:
        # Absence counts only over successful queries in a row (tracking.unconfirmed_jobs).
        present = {"misses": 0, "missing_since": None}
        work.jobs.change_many([(job.row, present, job.version) for job in live if job.misses])
        work.refreshes.finish(cluster, holder=holder, failed_at=context.clock.now(), error=error)
        return freshness.of(work, cluster)
