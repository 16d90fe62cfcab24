"""wait: refresh until jobs have ended. All waiting processes share one squeue per interval."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence

from orchestrator import errors, jobs
from orchestrator.clocks import deadlines
from orchestrator.controller.actions import confirmed
from orchestrator.controller.metrics import ingest, job_patterns
from orchestrator.controller.recovery import chains
from orchestrator.controller.refresh import freshness, refresh
from orchestrator.controller.resubmission import deferred_jobs
from orchestrator.controller.session import clock_check, clusters, contexts
from orchestrator.diagnosis.pending import reasons as pending_reasons
from orchestrator.jobs import naming
from orchestrator.processes import process
from orchestrator.slurm.client import Client

#: how long to wait for the accounting record of an ended job
DETAILS_SECONDS = 30.0
#: how long Slurm's commands may go on after the deadline
GRACE_SECONDS = 1.0


def update(context: contexts.Context, by_row: dict[int, jobs.Job]) -> bool:
    """Refresh the jobs in `by_row` if that is due; return whether one of them is still live."""
    with contextlib.suppress(errors.DatabaseError):
        # Not reported: a log is followed on a full disk too.
        refresh.refresh(context)
    by_row.update((job.row, job) for job in confirmed.stored(context, list(by_row)))
    return any(not job.ended for job in by_row.values())


def wait(
    context: contexts.Context,
    rows: Sequence[int],
    *,
    timeout_seconds: float | None = None,
    changed: Callable[[Sequence[jobs.Job]], None] = lambda several: None,
) -> list[jobs.Job]:
    """Return the jobs when all have ended, or as they are after the timeout.

    A job with [retry] is replaced by its newest continuation job. While no controller is running,
    this process applies the recovery rules. `changed` is called with the jobs that have a new
    state. Logs are read meanwhile, so that all metrics are stored at the end; at the timeout the
    rest is left to the next command, and Slurm's commands are killed a second later.
    """
    deadline = context.deadline
    if timeout_seconds is not None:
        deadline = deadline.within(timeout_seconds)
    if deadline.is_finite:
        client = _bounded(context.slurm, deadline)
        context = dataclasses.replace(context, slurm_client=lambda: client)
    context = dataclasses.replace(context, deadline=deadline, reporter=context.reporter.once())
    try:
        _refuse_other_clusters(context, confirmed.stored(context, rows))
    except deadlines.TimeUpError:
        return confirmed.stored(context, rows)
    log_deadline: deadlines.Deadline | None = None
    states: dict[int, jobs.JobState] = {}
    ended_at: dict[int, datetime.datetime] = {}
    known = job_patterns.configured(context.configuration)
    completely_read: set[int] = set()
    while True:
        try:
            fresh = deferred_jobs.refresh_or_warn(context)
            current = confirmed.stored(context, rows)
            if any(job.ended and job.state is not jobs.JobState.COMPLETED for job in current):
                _recover(context, current)
                # In the same pass: later another process may have given up the continuation job.
                newest = chains.last_jobs(context, rows)
                current = list({job.row: job for job in map(newest.get, rows) if job}.values())
                rows = [job.row for job in current]
        except deadlines.TimeUpError:
            return confirmed.stored(context, rows)
        now = context.clock.now()
        changed([job for job in current if states.get(job.row) is not job.state])
        states.update({job.row: job.state for job in current})
        _warn_of_stuck(context, current)
        ended_at = {job.row: ended_at.get(job.row, now) for job in current if job.ended}
        unread = [job for job in current if job.row not in completely_read]
        look = context.deadline.within(ingest.LOOK_SECONDS)
        ingested = ingest.ingest_or_warn(context, unread, known, deadline=look)
        completely_read |= {
            job.row
            for job in current
            if job.settled and job.ended and job.row not in ingested.unread
        }
        if all(_is_done(job, ended_at, now) for job in current):
            # The log of an ended job may take longer to read than anybody wants to wait.
            log_deadline = log_deadline or deadline.within(ingest.READ_SECONDS)
            if not ingested.unread or log_deadline.is_over:
                if message := ingested.report(ingest.READ_SECONDS, "the next command reads on"):
                    context.reporter.warn(message)
                return current
            continue
        if deadline.is_over:
            return current
        pause_seconds = _pause_seconds(context, fresh, now)
        if any(job.scheduler == "local" and not job.settled for job in current):
            pause_seconds = min(pause_seconds, refresh.LOCAL_FLOOR_SECONDS)
        context.clock.sleep(min(pause_seconds, deadline.left_seconds))
        if deadline.is_over:
            # Another process may have refreshed meanwhile.
            return confirmed.stored(context, rows)


def _refuse_other_clusters(context: contexts.Context, selected: Sequence[jobs.Job]) -> None:
    for group_context, group in contexts.by_scheduler(context, selected):
        cluster = clusters.facts(group_context).cluster
        for job in group:
            if not job.settled and (why := clusters.elsewhere(job, cluster)):
                raise errors.ConflictError(why)


def _bounded(client: Client, deadline: deadlines.Deadline) -> Client:
    """Return a client whose commands are killed soon after the deadline, with TimeUpError."""
    # With a timeout of 0 s Slurm is asked once.
    end = dataclasses.replace(deadline, at=deadline.at + GRACE_SECONDS)

    def run(
        argv: Sequence[str], timeout_seconds: float, environ: Mapping[str, str], /
    ) -> process.Result:
        if end.is_over:
            raise deadlines.TimeUpError
        result = client.run(argv, min(timeout_seconds, end.left_seconds), environ)
        # Our own deadline must not be stored as a failure of Slurm.
        if result.timed_out and end.is_over:
            raise deadlines.TimeUpError
        return result

    return dataclasses.replace(client, run=run)


def _recover(context: contexts.Context, current: Sequence[jobs.Job]) -> None:
    """Apply the recovery rules, unless a controller is running or nothing may be changed."""
    waiting = [job for job in current if job.recovers and job.ended and not job.is_over]
    if not waiting:
        return
    context = clock_check.checked(context)
    if context.clock.doubt:
        return
    with context.store.reading() as work:
        lease = work.leases.read(context.clock.now())
    if lease is not None and lease.holder is not None and not lease.lapsed:
        return
    if context.is_read_only:
        context.reporter.warn(
            f"Nothing applies the recovery rules of {naming.names_of(waiting)}: no controller is "
            "running, and this command may change nothing"
        )
        return
    from orchestrator.controller.recovery import recover_jobs

    try:
        for sentence in recover_jobs.step(context):
            context.reporter.info(sentence)
    except errors.OrchestratorError as error:
        context.reporter.warn(f"Recovery rules were not applied: {error}")


def _warn_of_stuck(context: contexts.Context, current: Sequence[jobs.Job]) -> None:
    """Warn of jobs that may never end without help."""
    by_reason: dict[str, list[jobs.Job]] = {}
    for job in current:
        if reason := pending_reasons.stuck_sentence(job):
            by_reason.setdefault(reason, []).append(job)
    for reason, group in by_reason.items():
        context.reporter.warn(f"{naming.names_of(group)} {reason}")


def _is_done(
    job: jobs.Job, ended_at: Mapping[int, datetime.datetime], now: datetime.datetime
) -> bool:
    if not job.is_over:
        return False
    return job.settled or (now - ended_at[job.row]).total_seconds() >= DETAILS_SECONDS


def _pause_seconds(
    context: contexts.Context, fresh: freshness.Freshness, now: datetime.datetime
) -> float:
    """Return the time until the next refresh is due."""
    floor = float(context.profile.poll_floor_seconds)
    asked_at = max(filter(None, (fresh.last_good_squeue_at, fresh.last_tried_at)), default=None)
    if asked_at is None:
        return floor
    due = floor - (now - asked_at).total_seconds()
    return due if 0 < due <= floor else floor
