"""hold and release: keep a pending job from starting, or let it start."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.controller.actions import confirmed
from orchestrator.controller.session import contexts
from orchestrator.diagnosis import pending_reasons


def hold(
    context: contexts.Context, selected: Sequence[jobs.Job], *, confirm_seconds: float
) -> list[confirmed.Outcome]:
    """Hold pending jobs; one that has started is left alone."""
    outcomes = confirmed.carry_out(context, selected, _HOLD, confirm_seconds=confirm_seconds)
    started = [
        outcome.job
        for outcome in outcomes
        if outcome.end is confirmed.End.TOO_LATE and not outcome.job.ended
    ]
    for group_context, group in contexts.by_scheduler(context, started):
        # A job that was held while it ran stays pending once it is preempted or requeued (24.11).
        confirmed.ask(group_context, group, _RELEASE)
    return outcomes


def release(
    context: contexts.Context, selected: Sequence[jobs.Job], *, confirm_seconds: float
) -> list[confirmed.Outcome]:
    """Release held jobs, also those that were requeued in held state."""
    return confirmed.carry_out(context, selected, _RELEASE, confirm_seconds=confirm_seconds)


def _started(before: jobs.Job, now: jobs.Job) -> str:
    if now.state in jobs.TERMINAL:
        return f"{now.job_id} ended before it could be held ({now.state})"
    if now.state is jobs.JobState.PENDING:
        return ""
    return (
        f"{now.job_id} started before it could be held ({now.state}); "
        f"`orchestrator requeue --hold {now.job_id}` stops it and holds it"
    )


def _ended(job: jobs.Job) -> str:
    return f"{job.job_id} has ended ({job.state})" if job.state in jobs.TERMINAL else ""


def _not_pending(job: jobs.Job) -> str:
    if pending_reasons.is_held(job) or job.state is jobs.JobState.PENDING:
        return ""
    # scontrol accepts it, and squeue then shows a running job with reason JobHeldUser.
    return _ended(job) or (
        f"{job.job_id} is {job.state}; only a pending job can be held. "
        f"`orchestrator requeue --hold {job.job_id}` stops it and holds it"
    )


_HOLD = confirmed.Action(
    command="scontrol hold",
    run=lambda scheduler, job_ids: scheduler.hold(job_ids),
    objection=_not_pending,
    is_done=lambda before, now: pending_reasons.is_held(now),
    too_late=_started,
)
_RELEASE = confirmed.Action(
    command="scontrol release",
    run=lambda scheduler, job_ids: scheduler.release(job_ids),
    objection=_ended,
    # True also for a job that starts and ends between two refreshes.
    is_done=lambda before, now: not pending_reasons.is_held(now),
)
