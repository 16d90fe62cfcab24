"""hold and release pending jobs; requeue running and ended ones under the same job ID."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Sequence

from orchestrator import jobs
from orchestrator.controller.actions import confirmed
from orchestrator.controller.prune import marks
from orchestrator.controller.refresh import slurm_queries
from orchestrator.controller.session import contexts
from orchestrator.diagnosis.pending import reasons as pending_reasons

#: slurmctld's error for --no-requeue, and for a site with JobRequeue=0 (22.05 to 26.05)
_DISABLED = "Requested operation is presently disabled"


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
    name="hold",
    objection=_not_pending,
    is_done=lambda before, now: pending_reasons.is_held(now),
    too_late=_started,
)
_RELEASE = confirmed.Action(
    name="release",
    objection=_ended,
    # True also for a job that starts and ends between two refreshes.
    is_done=lambda before, now: not pending_reasons.is_held(now),
)


def requeue(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    *,
    hold: bool = False,
    confirm_seconds: float = confirmed.CONFIRM_SECONDS,
    by_rules: bool = False,
) -> list[confirmed.Outcome]:
    """Requeue the jobs; `hold`: in held state.

    An ended job can be requeued only while slurmctld has its record (MinJobAge). by_rules: only if
    no other attempt has started than the one that `selected` has.
    """
    attempts = {job.row: job.attempt for job in selected}

    @functools.cache
    def known_rows() -> Collection[int]:
        return _known_to_scheduler(context, selected)

    def objection(job: jobs.Job) -> str:
        if job.ended and (pruned := marks.note(context, job)):
            return f"{pruned}; {_how_to_resubmit(job)} as a new job"
        if by_rules and job.attempt != attempts[job.row]:
            return f"{job.job_id} was started again meanwhile"
        if job.state in jobs.TERMINAL and job.row not in known_rows():
            return (
                f"{job.job_id} has ended ({job.state}) and Slurm has forgotten it; "
                f"{_how_to_resubmit(job)} as a new job"
            )
        if pending_reasons.is_held(job):
            how = f"`orchestrator release {job.job_id}` releases it"
            return f"{job.job_id} is already pending, held; {how}"
        if job.state is jobs.JobState.PENDING:
            return f"{job.job_id} is already pending; `orchestrator hold {job.job_id}` holds it"
        return ""

    def is_done(before: jobs.Job, now: jobs.Job) -> bool:
        if now.attempt <= before.attempt:
            return False
        return pending_reasons.is_held(now) if hold else now.state is not jobs.JobState.COMPLETING

    def too_late(before: jobs.Job, now: jobs.Job) -> str:
        has_started = now.state in jobs.TERMINAL or now.state is jobs.JobState.RUNNING
        if hold and has_started and now.attempt > before.attempt:
            return f"{now.job_id} was requeued and released before it was seen held ({now.state})"
        return ""

    action = confirmed.Action(
        name="requeuehold" if hold else "requeue",
        objection=objection,
        is_done=is_done,
        too_late=too_late,
        source="rules" if by_rules else "user",
    )
    outcomes = confirmed.carry_out(context, selected, action, confirm_seconds=confirm_seconds)
    return [_explained(outcome) for outcome in outcomes]


def _known_to_scheduler(context: contexts.Context, selected: Sequence[jobs.Job]) -> Collection[int]:
    """Return the rows of the jobs that slurmctld has, each with its own token.

    A refresh looks at live jobs only. This second squeue runs only if an ended job is requeued.
    """
    # This machine keeps ended jobs for a month, and itself refuses those that it has removed.
    known = {job.row for job in selected if job.scheduler == "local"}
    in_slurm = [job for job in selected if job.job_id is not None and job.scheduler == "slurm"]
    if in_slurm:
        with context.store.reading() as work:
            installation_id = work.settings.installation_id()
        queue = slurm_queries.query_queue(context, in_slurm, installation_id)
        known |= {
            job.row for job in in_slurm if any(row.job_id == job.job_id for row in queue.of(job))
        }
    return known


def _explained(outcome: confirmed.Outcome) -> confirmed.Outcome:
    if outcome.end is not confirmed.End.REFUSED or _DISABLED not in outcome.why:
        return outcome
    why = (
        f"{outcome.why} (the job was submitted with --no-requeue, or the site disables requeueing; "
        f"after it has ended, {_how_to_resubmit(outcome.job)})"
    )
    return dataclasses.replace(outcome, why=why)


def _how_to_resubmit(job: jobs.Job) -> str:
    # How a tracked job was submitted is not known well enough for `resubmit`.
    command = "sbatch" if job.tracked_name is not None else f"`orchestrator resubmit {job.job_id}`"
    return f"{command} submits it again"
