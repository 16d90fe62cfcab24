"""hold and release: a waiting job is kept from starting, or let go again."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.controller.actions import confirmed
from orchestrator.controller.session import contexts
from orchestrator.diagnosis import pending_reasons


def hold(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    *,
    confirm_seconds: float = confirmed.CONFIRM_SECONDS,
) -> list[confirmed.Outcome]:
    """Hold waiting jobs; one that has started is left alone."""
    outcomes = confirmed.fulfil(context, wanted, _HOLD, confirm_seconds=confirm_seconds)
    late = [one.job for one in outcomes if one.end is confirmed.End.TOO_LATE and not one.job.ended]
    for there, some in contexts.by_scheduler(context, late):
        # A job that was held while it ran waits for ever once it is preempted or requeued (24.11).
        confirmed.ask(there, some, _RELEASE)
    return outcomes


def release(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    *,
    confirm_seconds: float = confirmed.CONFIRM_SECONDS,
) -> list[confirmed.Outcome]:
    """Let held jobs start, also those that were requeued in held state."""
    return confirmed.fulfil(context, wanted, _RELEASE, confirm_seconds=confirm_seconds)


def _has_begun(now: jobs.Job) -> str:
    if now.state in jobs.TERMINAL:
        return f"{now.job_id} ended before it could be held ({now.state})"
    if now.state is jobs.JobState.PENDING:
        return ""
    return (
        f"{now.job_id} started before it could be held ({now.state}); "
        f"`orchestrator requeue --hold {now.job_id}` stops it and holds it"
    )


def _has_ended(job: jobs.Job) -> str:
    return f"{job.job_id} has ended ({job.state})" if job.state in jobs.TERMINAL else ""


def _cannot_be_held(job: jobs.Job) -> str:
    if pending_reasons.is_held(job) or job.state is jobs.JobState.PENDING:
        return ""
    # scontrol takes it, and squeue then shows a running job with reason JobHeldUser.
    return _has_ended(job) or (
        f"{job.job_id} is {job.state}: only a job that waits can be held; "
        f"`orchestrator requeue --hold {job.job_id}` stops it and holds it"
    )


_HOLD = confirmed.Wish(
    command="scontrol hold",
    ask=lambda scheduler, job_ids: scheduler.hold(job_ids),
    objection=_cannot_be_held,
    already=pending_reasons.is_held,
    done=lambda before, now: pending_reasons.is_held(now),
    hopeless=lambda before, now: _has_begun(now),
)
_RELEASE = confirmed.Wish(
    command="scontrol release",
    ask=lambda scheduler, job_ids: scheduler.release(job_ids),
    objection=_has_ended,
    already=lambda job: not pending_reasons.is_held(job),
    # One that starts and ends between two looks is released too.
    done=lambda before, now: not pending_reasons.is_held(now),
)
