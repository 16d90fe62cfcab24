"""cancel: scancel, then confirm with squeue or sacct; its exit status proves nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from orchestrator import errors, jobs, recovery
from orchestrator.controller.actions import confirmed
from orchestrator.controller.planning import agreement
from orchestrator.controller.recovery import chains
from orchestrator.controller.refresh import identity
from orchestrator.controller.session import clusters, contexts
from orchestrator.files import run_folder
from orchestrator.jobs import naming
from orchestrator.slurm import job_ids


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cancelled:
    #: as it is now: ended, unless Slurm does not show its end yet
    job: jobs.Job
    #: it had ended before
    already: bool
    #: why it cannot be cancelled now; "" otherwise
    why: str
    #: a planned retry was withdrawn
    withdrawn: bool
    #: continuation job of a job that had ended
    followed_by: jobs.Job | None


def cancel(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    *,
    confirm_seconds: float = confirmed.CONFIRM_SECONDS,
) -> list[Cancelled]:
    """Cancel the jobs and wait until Slurm shows that they ended, at most `confirm_seconds`.

    A job that cannot be cancelled now (`why`) does not keep others from it: one whose submission
    has no known outcome has no ID, and a deferred array can only be cancelled as a whole.
    """
    agreement.on_change(context, "Cancel", lambda: selected)
    withdrawn, requeued = _withdraw_retries(context, selected)
    ended_before = {job.row for job in selected if job.ended} - requeued
    current, objections = _cancel_deferred(context, selected)
    live: list[jobs.Job] = []
    for job in current:
        if (job.ended and job.row not in requeued) or job.row in objections:
            continue
        if why := confirmed.without_id(job) or clusters.other_machine(job):
            objections[job.row] = why
        else:
            live.append(job)
    for group_context, group in contexts.by_scheduler(context, live):
        _cancel_live(group_context, group)
    if live:
        confirmed.poll(
            context,
            live,
            lambda job: not job.ended,
            change="the end of",
            confirm_seconds=confirm_seconds,
        )
    last = confirmed.stored(context, current)
    # Last, because a continuation job may have been stored meanwhile.
    newest = chains.last_jobs(
        context, [job.row for job in last if job.ended and job.row not in objections]
    )
    return [
        Cancelled(
            job=job,
            already=job.row in ended_before,
            why=objections.get(job.row, ""),
            withdrawn=job.row in withdrawn,
            followed_by=newest[job.row] if newest.get(job.row, job).row != job.row else None,
        )
        for job in last
    ]


def _cancel_live(context: contexts.Context, live: Sequence[jobs.Job]) -> None:
    """Cancel jobs of one scheduler, but no other job that has one of their IDs by now."""
    _store_request(context, live)
    if context.is_local:
        for job in live:
            context.machine.cancel(str(job.job_id), run_folder.name_in_slurm(job))
        return
    attempts = {job.row: job.attempt for job in live}
    live, shown = _look_up(context, live)
    if restarted := [job for job in live if job.attempt != attempts[job.row]]:
        _store_request(context, restarted)
    ids: list[str] = []
    for tasks in naming.by_submission(live):
        if not all(job.row in shown for job in tasks):
            record = context.slurm.show_job(str(tasks[0].array_job_id or tasks[0].job_id))
            if record is None or not identity.is_record_of(context, tasks[0], record):
                continue
        ids += _ids(context, tasks)
    context.slurm.cancel(ids)


def _store_request(context: contexts.Context, live: Sequence[jobs.Job]) -> None:
    """Store the request for the present attempts, before Slurm is asked for anything.

    No rule may continue a job that has just failed, and a cancelled pending task leaves no other
    trace.
    """
    detail = "cancellation requested"
    try:
        with context.store.writing() as work:
            work.events.add_many(
                (job.row, context.event("cancel", detail, attempt=job.attempt)) for job in live
            )
    except errors.DatabaseError as error:
        # One of these jobs may be what fills the disk.
        context.reporter.warn(f"Cancelling, but the request cannot be stored: {error}")


def _look_up(
    context: contexts.Context, live: Sequence[jobs.Job]
) -> tuple[Sequence[jobs.Job], set[int]]:
    """Return the jobs that have not ended meanwhile, and the rows of those that squeue shows."""
    started = context.clock.now()
    try:
        current = confirmed.refreshed(context, live)
    except (errors.SlurmError, errors.DatabaseError):
        # scancel may work all the same.
        return live, set()
    # The stored state of a job that a rule has just requeued may be that of its last attempt.
    requeued = {job.row for job in live if job.ended}
    live = [job for job in current if not job.ended or job.row in requeued]
    shown = [job for job in live if not job.ended and not confirmed.not_shown(job, started)]
    return live, {job.row for job in shown}


def _withdraw_retries(
    context: contexts.Context, selected: Sequence[jobs.Job]
) -> tuple[set[int], set[int]]:
    """Withdraw the planned retries of jobs that have ended.

    Returns the rows of these jobs, and of those that a rule has just requeued: they are live again.
    """
    retriable = {job.row: job for job in selected if job.ended and not job.is_over}
    if not retriable:
        return set(), set()
    with context.store.writing() as work:
        requeued = {
            stored.job_row
            for stored in work.recovery.of_jobs(list(retriable))
            if stored.attempt == retriable[stored.job_row].attempt
            and (stored.state, stored.action) == ("done", recovery.Action.REQUEUE)
        }
        work.recovery.withdraw(list(retriable), "its user cancelled it")
        withdrawn = retriable.keys() - requeued
        detail = "not started again"
        work.events.add_many(
            (row, context.event("cancel", detail, attempt=retriable[row].attempt))
            for row in sorted(withdrawn)
        )
    return withdrawn, requeued


def _cancel_deferred(
    context: contexts.Context, selected: Sequence[jobs.Job]
) -> tuple[list[jobs.Job], dict[int, str]]:
    """Cancel deferred jobs, and the automatic resubmission of those that sbatch has not answered.

    Returns the jobs, and by row why some stay deferred: single tasks of a deferred array.
    """
    unsent = {job.row for job in selected if job.job_id is None and job.resend_at is not None}
    if not unsent:
        return list(selected), {}
    tokens = sorted({job.token for job in selected if job.row in unsent})
    objections: dict[int, str] = {}
    with context.store.writing() as work:
        # In one transaction: another process submits an array as a whole.
        stored = work.jobs.of_submissions(tokens)
        partial = {job.token for job in stored if job.row not in unsent and job.is_deferred}
        changes: list[tuple[int, dict[str, object], None]] = []
        for job in stored:
            if job.row not in unsent or job.job_id is not None or job.resend_at is None:
                continue
            if job.token in partial:
                objections[job.row] = (
                    f"@{job.row} is a task of an array that is deferred as a whole: "
                    f"`orchestrator cancel {job.name}` cancels all its tasks"
                )
                continue
            fields: dict[str, object] = {"resend_at": None, "refusals": 0}
            if job.is_deferred:
                fields["reason"] = "cancelled before it was submitted"
            changes.append((job.row, fields, None))
        work.jobs.change_many(changes)
        event = context.event("cancel", "not sent again")
        work.events.add_many((row, event) for row, _, _ in changes)
        current = {job.row: job for job in work.jobs.of_submissions(tokens)}
    for folder in {current[row].run_dir for row in unsent if current[row].ended}:
        run_folder.RunFolder(Path(folder)).drop_environment()
    return [current.get(job.row, job) for job in selected], objections


def _ids(context: contexts.Context, tasks: Sequence[jobs.Job]) -> list[str]:
    """Return the IDs for scancel: of a job, of a whole array, or of some of its tasks."""
    array_job_id = tasks[0].array_job_id
    if array_job_id is None or len(tasks) == 1:
        return [str(job.job_id) for job in tasks]
    rows = {job.row for job in tasks}
    with context.store.reading() as work:
        remaining = work.jobs.of_submissions([tasks[0].token])
    # Of a tracked array some tasks may not be in the database.
    if tasks[0].tracked_name is None and all(job.ended for job in remaining if job.row not in rows):
        return [array_job_id]
    return job_ids.array_arguments(array_job_id, (job.array_task_id or 0 for job in tasks))
