"""cancel: scancel, and then look whether Slurm did it; its exit status proves nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from orchestrator import errors, jobs, recovery
from orchestrator.controller.actions import confirmed as wishes
from orchestrator.controller.recovery import chains
from orchestrator.controller.refresh import identity, refresh
from orchestrator.controller.session import clusters, contexts
from orchestrator.jobs import naming
from orchestrator.slurm import job_ids
from orchestrator.tracking import run_folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cancelled:
    """What became of the wish to cancel one job."""

    job: jobs.Job
    #: it is seen to have ended (or had ended before)
    confirmed: bool
    #: it was over before we asked
    already: bool = False
    #: why nothing was asked for it; "" where something was, or where it had ended
    why: str = ""
    #: another start was planned for it, and is not any more
    withdrawn: bool = False
    #: of a job that had ended: the one that goes on with it
    followed_by: jobs.Job | None = None


def cancel(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    *,
    confirm_seconds: float = wishes.CONFIRM_SECONDS,
) -> list[Cancelled]:
    """Cancel the jobs and wait until squeue or sacct shows that they ended, or the time is up.

    One that cannot be cancelled now (`why`) keeps no other from it: one whose submission is not
    settled yet has no ID to cancel, and an array that waits for room is sent as a whole.
    """
    wanted, withdrawn, objections = _not_started_again(context, wanted)
    over = {job.row for job in wanted if job.ended}
    now, kept = _taken_back(context, wanted)
    objections |= kept
    for job in now:
        if job.row not in objections and (why := _objection(context, job)):
            objections[job.row] = why
    open_ = [job for job in now if job.row not in objections]
    by_name: set[int] = set()
    for there, some in contexts.by_scheduler(context, (job for job in open_ if not job.ended)):
        by_name |= _ask(there, some)
    found = {job.row: job for job in _confirm(context, open_, by_name, confirm_seconds)}
    # Last: who goes on may have been stored before the wish was.
    last = chains.newest(context, [row for row, job in found.items() if job.ended])
    return [
        Cancelled(
            job=found.get(job.row, job),
            confirmed=found.get(job.row, job).ended,
            already=job.row in over,
            why=objections.get(job.row, ""),
            withdrawn=job.row in withdrawn,
            followed_by=last[job.row] if last.get(job.row, job).row != job.row else None,
        )
        for job in now
    ]


def _objection(context: contexts.Context, job: jobs.Job) -> str:
    if job.ended:
        return ""
    if job.job_id is None:
        return (
            f"@{job.row} has no job ID yet ({job.state}); `orchestrator status @{job.row}` "
            "finds out whether Slurm has it, then cancel it"
        )
    return clusters.other_machine(job)


def _ask(context: contexts.Context, live: Sequence[jobs.Job]) -> set[int]:
    """Ask for the end of jobs of one scheduler; return the rows of those asked for by name."""
    seen: Collection[int] = ()
    # scancel takes one name, and to compare it fetches the jobs of all users each time. So several
    # jobs are looked at once instead: then a reused ID hits no other job either.
    if len(_by_submission(live)) > 1 and not context.is_local:
        live, seen = _looked_at(context, live)
    try:
        _store(context, live)
    except errors.DatabaseError as exc:
        context.reporter.warn(f"Asked for all the same, though it cannot be stored: {exc}")
    together: list[str] = []
    by_name: set[int] = set()
    for tasks in _by_submission(live):
        ids = _ids(context, tasks)
        if all(job.row in seen for job in tasks):
            together += ids
            continue
        if any("_" in job_id for job_id in ids) and not context.is_local:
            # scancel 22.05 with a name ends the tasks that were not named too (slurm.scontrol).
            papers = context.slurm.show_job(str(tasks[0].array_job_id))
            if papers is not None and identity.in_papers(context, tasks[0], papers):
                together += ids
            continue
        by_name |= {job.row for job in tasks}
        for job_id in ids:
            context.scheduler.cancel(job_id, run_folder.name_in_slurm(tasks[0]))
    if together:
        context.slurm.cancel_all(together)
    return by_name


def _looked_at(
    context: contexts.Context, live: Sequence[jobs.Job]
) -> tuple[Sequence[jobs.Job], Collection[int]]:
    """Return those that have not ended, and the rows of those that squeue shows at this moment."""
    begun = context.clock.now()
    try:
        found = wishes.look(context, live)
    except (errors.SlurmError, errors.DatabaseError):
        # scancel may be answered yet; and what fills the disk may be one of these jobs.
        return live, ()
    left = [job for job in found if not job.ended]
    return left, {job.row for job in left if not wishes.unseen(job, begun)}


def _store(context: contexts.Context, live: Sequence[jobs.Job]) -> None:
    """Store that the end is asked for, before it is: of a waiting task nothing else may tell."""
    detail = "its end was asked for" if context.is_local else "scancel was asked"
    at = context.clock.now()
    with context.store.writing() as work:
        work.events.add_many(
            (
                job.row,
                jobs.JobEvent(
                    at=at, kind="cancel", attempt=job.attempt, source="user", detail=detail
                ),
            )
            for job in live
        )


def _not_started_again(
    context: contexts.Context, wanted: Sequence[jobs.Job]
) -> tuple[list[jobs.Job], set[int], dict[int, str]]:
    """Let nothing follow jobs that have ended.

    Returns the jobs, as Slurm has them now where a rule requeued them at this moment; the rows of
    those that nothing follows any more; and why some cannot be cancelled now, by row.
    """
    open_ = [job for job in wanted if job.ended and not job.is_over]
    if not open_:
        return list(wanted), set(), {}
    attempts = {job.row: job.attempt for job in open_}
    event = jobs.JobEvent(
        at=context.clock.now(), kind="cancel", source="user", detail="not started again"
    )
    with context.store.writing() as work:
        requeued = {
            one.job_row
            for one in work.recovery.of_jobs(list(attempts))
            if one.attempt == attempts[one.job_row]
            and (one.state, one.decision.action) == ("done", recovery.Action.REQUEUE)
        }
        left = [job for job in open_ if job.row not in requeued]
        work.recovery.withdraw(list(attempts), "its user cancelled it")
        work.events.add_many(
            (job.row, dataclasses.replace(event, attempt=job.attempt)) for job in left
        )
    found: dict[int, jobs.Job] = {}
    objections: dict[int, str] = {}
    again = [job for job in open_ if job.row in requeued]
    for there, some in contexts.by_scheduler(context, again):
        try:
            found.update({job.row: job for job in wishes.look(there, some)})
        except errors.SlurmError as exc:
            objections |= {job.row: f"{job.job_id} was requeued just now: {exc}" for job in some}
    return [found.get(job.row, job) for job in wanted], {job.row for job in left}, objections


def _taken_back(
    context: contexts.Context, wanted: Sequence[jobs.Job]
) -> tuple[list[jobs.Job], dict[int, str]]:
    """Return the jobs as they are when they are not sent (again) by themselves any more.

    And why some still are, by row: tasks of an array that waits as a whole.
    """
    waiting = [job for job in wanted if job.job_id is None and job.resend_at is not None]
    if not waiting:
        return list(wanted), {}
    rows = {job.row for job in waiting}
    tokens = sorted({job.token for job in waiting})
    kept: dict[int, str] = {}
    with context.store.writing() as work:
        # All in one transaction: what another process sends, it sends as a whole.
        found = work.jobs.of_submissions(tokens)
        parts = {job.token for job in found if job.row not in rows and job.is_deferred}
        open_: list[jobs.Job] = []
        for job in found:
            if job.row not in rows or job.job_id is not None or job.resend_at is None:
                continue
            if job.token in parts:
                kept[job.row] = (
                    f"@{job.row} is a task of an array that waits to be submitted as a whole: "
                    f"`orchestrator cancel {job.name}` takes back all its tasks"
                )
            else:
                open_.append(job)
        work.jobs.change_many([(job.row, _not_again(job), None) for job in open_])
        event = jobs.JobEvent(
            at=context.clock.now(), kind="cancel", source="user", detail="not sent again"
        )
        work.events.add_many((job.row, event) for job in open_)
        now = {job.row: job for job in work.jobs.of_submissions(tokens)}
    for folder in sorted({now[row].run_dir for row in rows if now[row].ended}):
        run_folder.RunFolder(Path(folder)).drop_environment()
    return [now.get(job.row, job) for job in wanted], kept


def _not_again(job: jobs.Job) -> dict[str, object]:
    changes: dict[str, object] = {"resend_at": None, "refusals": 0}
    if job.is_deferred:
        changes["reason"] = "cancelled before it was submitted"
    return changes


def _by_submission(wanted: Iterable[jobs.Job]) -> list[list[jobs.Job]]:
    found: dict[str, list[jobs.Job]] = {}
    for job in wanted:
        found.setdefault(job.token, []).append(job)
    return list(found.values())


def _ids(context: contexts.Context, tasks: Sequence[jobs.Job]) -> list[str]:
    """Return the words for scancel: of a job, of a whole array, or of some of its tasks."""
    array_job_id = tasks[0].array_job_id
    if array_job_id is None or len(tasks) == 1 or tasks[0].scheduler == "local":
        return [str(job.job_id) for job in tasks]
    rows = {job.row for job in tasks}
    with context.store.reading() as work:
        others = [job for job in work.jobs.of_submissions([tasks[0].token]) if job.row not in rows]
    # Of an array that was submitted by hand some tasks may be tracked alone, or not at all.
    if tasks[0].tracked_name is None and all(job.ended for job in others):
        return [array_job_id]
    return job_ids.array_arguments(array_job_id, (job.array_task_id or 0 for job in tasks))


def _confirm(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    by_name: Collection[int],
    confirm_seconds: float,
) -> list[jobs.Job]:
    """Look after 1, 2, 4 ... seconds, whatever the profile's floor: a person waits for it."""
    begun = context.clock.now()
    pause_seconds = 1.0
    while True:
        if not all(job.ended for job in wanted):
            refresh.refresh(context, floor_seconds=0)
        found = wishes.stored(context, wanted)
        left_seconds = confirm_seconds - (context.clock.now() - begun).total_seconds()
        pending = [job for job in found if not job.ended]
        if not pending or left_seconds <= 0:
            return found
        if pause_seconds == 1.0:
            names = naming.names_of(pending)
            context.reporter.info(
                f"Waiting until {contexts.scheduler_name(pending)} shows the end of {names} ..."
            )
        elif pause_seconds == 2.0:
            _cancel_renamed(context, [job for job in pending if job.row in by_name])
        longest_seconds = 15.0
        if all(job.scheduler == "local" for job in pending):
            longest_seconds = refresh.LOCAL_FLOOR_SECONDS
        context.clock.sleep(min(pause_seconds, left_seconds, longest_seconds))
        pause_seconds = min(pause_seconds * 2, 15.0)


def _cancel_renamed(context: contexts.Context, pending: Sequence[jobs.Job]) -> None:
    """Cancel by the name they have now the jobs that were renamed while they waited."""
    for tasks in _by_submission(pending):
        first = tasks[0]
        scheduler = context.with_scheduler(first.scheduler).scheduler
        # Of an array the first record's name: one that waits is renamed as a whole.
        papers = scheduler.show_job(first.job_id or "")
        if papers is None or not identity.in_papers(context, first, papers):
            continue
        name = papers.get("JobName", "")
        if name and name != run_folder.name_in_slurm(first):
            for job_id in _ids(context, tasks):
                scheduler.cancel(job_id, name)
