"""cancel: scancel, then confirm with squeue or sacct; its exit status proves nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from orchestrator import errors, jobs, recovery
from orchestrator.controller.actions import confirmed
from orchestrator.controller.recovery import chains
from orchestrator.controller.refresh import identity, refresh
from orchestrator.controller.session import clusters, contexts
from orchestrator.jobs import naming
from orchestrator.slurm import job_ids
from orchestrator.tracking import run_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The result of cancelling one job."""

    job: jobs.Job
    #: Slurm shows that it ended, or it had ended before
    confirmed: bool
    #: it had ended before
    already: bool = False
    #: why it cannot be cancelled now; "" otherwise
    why: str = ""
    #: a planned retry was withdrawn
    withdrawn: bool = False
    #: continuation job of a job that had ended
    followed_by: jobs.Job | None = None


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
    selected, withdrawn, objections = _withdraw_retries(context, selected)
    ended_before = {job.row for job in selected if job.ended}
    current, deferred_tasks = _cancel_deferred(context, selected)
    objections |= deferred_tasks
    for job in current:
        if job.row not in objections and (why := _objection(job)):
            objections[job.row] = why
    possible = [job for job in current if job.row not in objections]
    by_name: set[int] = set()
    live = [job for job in possible if not job.ended]
    for group_context, group in contexts.by_scheduler(context, live):
        by_name |= _scancel(group_context, group)
    by_row = {job.row: job for job in _confirm(context, possible, by_name, confirm_seconds)}
    # Last, because a continuation job may have been stored meanwhile.
    newest = chains.last_jobs(context, [row for row, job in by_row.items() if job.ended])
    return [
        Cancelled(
            job=by_row.get(job.row, job),
            confirmed=by_row.get(job.row, job).ended,
            already=job.row in ended_before,
            why=objections.get(job.row, ""),
            withdrawn=job.row in withdrawn,
            followed_by=newest[job.row] if newest.get(job.row, job).row != job.row else None,
        )
        for job in current
    ]


def _objection(job: jobs.Job) -> str:
    if job.ended:
        return ""
    if job.job_id is None:
        return (
            f"@{job.row} has no job ID yet ({job.state}). `orchestrator status @{job.row}` looks "
            "for it in Slurm; cancel it afterwards"
        )
    return clusters.other_machine(job)


def _scancel(context: contexts.Context, live: Sequence[jobs.Job]) -> set[int]:
    """Cancel jobs of one scheduler; return the rows of those cancelled by ID and name."""
    shown: Collection[int] = ()
    # scancel accepts one name, and fetches the jobs of all users each time to compare it. For
    # several jobs one squeue is enough to know that no other job has one of these IDs.
    if len(_by_submission(live)) > 1 and not context.is_local:
        live, shown = _shown_by_squeue(context, live)
    try:
        _store_request(context, live)
    except errors.DatabaseError as error:
        context.reporter.warn(f"scancel runs, but that cannot be stored: {error}")
    without_name: list[str] = []
    by_name: set[int] = set()
    for tasks in _by_submission(live):
        ids = _ids(context, tasks)
        if all(job.row in shown for job in tasks):
            without_name += ids
            continue
        if any("_" in job_id for job_id in ids) and not context.is_local:
            # scancel 22.05 with a name cancels tasks that were not named, too (slurm.scontrol).
            record = context.slurm.show_job(str(tasks[0].array_job_id))
            if record is not None and identity.is_record_of(context, tasks[0], record):
                without_name += ids
            continue
        by_name |= {job.row for job in tasks}
        for job_id in ids:
            context.scheduler.cancel(job_id, run_folder.name_in_slurm(tasks[0]))
    if without_name:
        context.slurm.cancel_all(without_name)
    return by_name


def _shown_by_squeue(
    context: contexts.Context, live: Sequence[jobs.Job]
) -> tuple[Sequence[jobs.Job], Collection[int]]:
    """Return the jobs that have not ended, and the rows of those that squeue shows now."""
    started = context.clock.now()
    try:
        current = confirmed.refreshed(context, live)
    except (errors.SlurmError, errors.DatabaseError):
        # scancel may work all the same; and one of these jobs may be what fills the disk.
        return live, ()
    live = [job for job in current if not job.ended]
    return live, {job.row for job in live if not confirmed.not_shown(job, started)}


def _store_request(context: contexts.Context, live: Sequence[jobs.Job]) -> None:
    """Store the request before scancel runs: a cancelled pending task leaves no other trace."""
    detail = "its end was asked for" if context.is_local else "scancel was asked"
    at = context.clock.now()
    with context.store.writing() as work:
        for job in live:
            event = jobs.JobEvent(
                at=at, kind="cancel", attempt=job.attempt, source="user", detail=detail
            )
            work.events.add(job.row, event)


def _withdraw_retries(
    context: contexts.Context, selected: Sequence[jobs.Job]
) -> tuple[Sequence[jobs.Job], set[int], dict[int, str]]:
    """Withdraw the planned retries of jobs that have ended.

    Returns the jobs, as Slurm has them if a rule has just requeued them; the rows of those with a
    withdrawn retry; and by row why a job cannot be cancelled now.
    """
    retriable = [job for job in selected if job.ended and not job.is_over]
    if not retriable:
        return selected, set(), {}
    attempts = {job.row: job.attempt for job in retriable}
    at = context.clock.now()
    with context.store.writing() as work:
        requeued_rows = {
            stored.job_row
            for stored in work.recovery.of_jobs(list(attempts))
            if stored.attempt == attempts[stored.job_row]
            and (stored.state, stored.decision.action) == ("done", recovery.Action.REQUEUE)
        }
        withdrawn = [job for job in retriable if job.row not in requeued_rows]
        work.recovery.withdraw(list(attempts), "its user cancelled it")
        for job in withdrawn:
            event = jobs.JobEvent(
                at=at, kind="cancel", attempt=job.attempt, source="user", detail="not started again"
            )
            work.events.add(job.row, event)
    current: dict[int, jobs.Job] = {}
    objections: dict[int, str] = {}
    requeued = [job for job in retriable if job.row in requeued_rows]
    for group_context, group in contexts.by_scheduler(context, requeued):
        try:
            current.update({job.row: job for job in confirmed.refreshed(group_context, group)})
        except errors.SlurmError as error:
            objections |= {job.row: f"{job.job_id} was requeued just now: {error}" for job in group}
    jobs_now = [current.get(job.row, job) for job in selected]
    return jobs_now, {job.row for job in withdrawn}, objections


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
        cancelled: list[jobs.Job] = []
        for job in stored:
            if job.row not in unsent or job.job_id is not None or job.resend_at is None:
                continue
            if job.token in partial:
                objections[job.row] = (
                    f"@{job.row} is a task of an array that is deferred as a whole: "
                    f"`orchestrator cancel {job.name}` cancels all its tasks"
                )
            else:
                cancelled.append(job)
        reason = {"reason": "cancelled before it was submitted"}
        work.jobs.change_many(
            [
                (
                    job.row,
                    {"resend_at": None, "refusals": 0, **(reason if job.is_deferred else {})},
                    None,
                )
                for job in cancelled
            ]
        )
        event = jobs.JobEvent(
            at=context.clock.now(), kind="cancel", source="user", detail="not sent again"
        )
        work.events.add_many((job.row, event) for job in cancelled)
        current = {job.row: job for job in work.jobs.of_submissions(tokens)}
    for folder in {current[row].run_dir for row in unsent if current[row].ended}:
        run_folder.RunFolder(Path(folder)).drop_environment()
    return [current.get(job.row, job) for job in selected], objections


def _by_submission(selected: Iterable[jobs.Job]) -> list[list[jobs.Job]]:
    groups: dict[str, list[jobs.Job]] = {}
    for job in selected:
        groups.setdefault(job.token, []).append(job)
    return list(groups.values())


def _ids(context: contexts.Context, tasks: Sequence[jobs.Job]) -> list[str]:
    """Return the IDs for scancel: of a job, of a whole array, or of some of its tasks."""
    array_job_id = tasks[0].array_job_id
    if array_job_id is None or len(tasks) == 1 or tasks[0].scheduler == "local":
        return [str(job.job_id) for job in tasks]
    rows = {job.row for job in tasks}
    with context.store.reading() as work:
        others = [job for job in work.jobs.of_submissions([tasks[0].token]) if job.row not in rows]
    # Of a tracked array some tasks may not be in the database.
    if tasks[0].tracked_name is None and all(job.ended for job in others):
        return [array_job_id]
    return job_ids.array_arguments(array_job_id, (job.array_task_id or 0 for job in tasks))


def _confirm(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    by_name: Collection[int],
    confirm_seconds: float,
) -> list[jobs.Job]:
    """Refresh after 1, 2, 4 ... seconds, whatever the profile's floor: a person waits for it."""
    started = context.clock.now()
    pause_seconds = 1.0
    while True:
        if not all(job.ended for job in selected):
            refresh.refresh(context, floor_seconds=0)
        current = confirmed.stored(context, selected)
        left_seconds = confirm_seconds - (context.clock.now() - started).total_seconds()
        live = [job for job in current if not job.ended]
        if not live or left_seconds <= 0:
            return current
        if pause_seconds == 1.0:
            names, scheduler = naming.names_of(live), contexts.scheduler_name(live)
            context.reporter.info(f"Waiting until {scheduler} shows the end of {names} ...")
        elif pause_seconds == 2.0:
            _scancel_renamed(context, [job for job in live if job.row in by_name])
        longest_seconds = confirmed.LONGEST_PAUSE_SECONDS
        if all(job.scheduler == "local" for job in live):
            longest_seconds = refresh.LOCAL_FLOOR_SECONDS
        context.clock.sleep(min(pause_seconds, left_seconds, longest_seconds))
        pause_seconds = min(pause_seconds * 2, confirmed.LONGEST_PAUSE_SECONDS)


def _scancel_renamed(context: contexts.Context, live: Sequence[jobs.Job]) -> None:
    """Cancel jobs that were renamed in Slurm by their present names."""
    for tasks in _by_submission(live):
        first = tasks[0]
        scheduler = context.with_scheduler(first.scheduler).scheduler
        # A pending array is renamed as a whole, so its first record has the name.
        record = scheduler.show_job(first.job_id or "")
        if record is None or not identity.is_record_of(context, first, record):
            continue
        name = record.get("JobName", "")
        if name and name != run_folder.name_in_slurm(first):
            for job_id in _ids(context, tasks):
                scheduler.cancel(job_id, name)
