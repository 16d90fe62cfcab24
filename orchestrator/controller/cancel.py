"""cancel: scancel, and then look whether Slurm did it; its exit status proves nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator import errors, jobs, run_folder, slurm
from orchestrator.controller import context as contexts
from orchestrator.controller import identity, refresh, wishes

#: KillWait is 30 s by default, and COMPLETING may follow it.
CONFIRM_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cancelled:
    """What became of the wish to cancel one job."""

    job: jobs.Job
    #: it is seen to have ended (or had ended before)
    confirmed: bool
    #: it was over before we asked
    already: bool = False


def cancel(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    *,
    confirm_seconds: float = CONFIRM_SECONDS,
) -> list[Cancelled]:
    """Cancel the jobs and wait until squeue or sacct shows that they ended, or the time is up.

    Raises ConflictError for a job whose submission is not settled yet: there is no ID to cancel;
    and for some tasks of an array that waits for room, which is sent as a whole.
    """
    over = {job.row for job in wanted if job.ended}
    wanted = _taken_back(context, wanted)
    for job in wanted:
        if job.job_id is None and not job.ended:
            raise errors.ConflictError(
                f"@{job.row} has no job ID yet ({job.state}); `orchestrator status @{job.row}` "
                "finds out whether Slurm has it, then cancel it"
            )
    live = [job for job in wanted if not job.ended and job.job_id is not None]
    if told := next(filter(None, (contexts.elsewhere(context, job) for job in live)), ""):
        raise errors.ConflictError(told)
    for tasks in _by_submission(live):
        first = tasks[0]
        if first.scheduler == "local":
            for job in tasks:
                context.machine.cancel(str(job.job_id), run_folder.name_in_slurm(first))
        else:
            _ask_slurm(context, tasks)
        at = context.clock()
        with context.store.writing() as work:
            work.add_events(
                (
                    job.row,
                    jobs.JobEvent(
                        at=at,
                        kind="cancel",
                        attempt=job.attempt,
                        source="user",
                        detail="its end was asked for"
                        if job.scheduler == "local"
                        else "scancel was asked",
                    ),
                )
                for job in tasks
            )
    return _confirm(context, wanted, over, confirm_seconds)


def _taken_back(context: contexts.Context, wanted: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return the jobs as they are when they are not sent (again) by themselves any more."""
    waiting = [job for job in wanted if job.job_id is None and job.resend_at is not None]
    if not waiting:
        return list(wanted)
    rows = {job.row for job in waiting}
    with context.store.writing() as work:
        # All in one transaction: what another process sends, it sends as a whole.
        found = work.jobs_of_tokens(sorted({job.token for job in waiting}))
        for job in found:
            if job.row not in rows and job.waits_for_room:
                first = next(one for one in waiting if one.token == job.token)
                raise errors.ConflictError(
                    f"@{first.row} is a task of an array that waits to be submitted as a whole: "
                    f"`orchestrator cancel {job.name}` takes back all its tasks"
                )
        open_ = [
            job
            for job in found
            if job.row in rows and job.job_id is None and job.resend_at is not None
        ]
        work.change_jobs([(job.row, _not_again(job), None) for job in open_])
        event = jobs.JobEvent(
            at=context.clock(), kind="cancel", source="user", detail="not sent again"
        )
        work.add_events((job.row, event) for job in open_)
        now = {job.row: job for job in work.jobs_of_tokens(sorted({job.token for job in waiting}))}
    for folder in sorted({now[row].run_dir for row in rows if now[row].ended}):
        run_folder.RunFolder(Path(folder)).drop_environment()
    return [now.get(job.row, job) for job in wanted]


def _not_again(job: jobs.Job) -> dict[str, object]:
    changes: dict[str, object] = {"resend_at": None, "refusals": 0}
    if job.waits_for_room:
        changes["reason"] = "cancelled before it was submitted"
    return changes


def _by_submission(wanted: Iterable[jobs.Job]) -> list[list[jobs.Job]]:
    found: dict[str, list[jobs.Job]] = {}
    for job in wanted:
        found.setdefault(job.token, []).append(job)
    return list(found.values())


def _ask_slurm(context: contexts.Context, tasks: Sequence[jobs.Job]) -> None:
    """Ask for the end of a submission's tasks in such a way that a reused ID hits no other job."""
    first = tasks[0]
    job_id = _asked_id(context, tasks)
    if "_" in job_id:
        # scancel 22.05 with a name ends the tasks that were not named too (slurm.scontrol).
        papers = context.slurm.show_job(str(first.array_job_id))
        if papers is not None and identity.in_papers(context, first, papers):
            context.slurm.cancel(job_id, None)
    else:
        context.slurm.cancel(job_id, run_folder.name_in_slurm(first))


def _asked_id(context: contexts.Context, tasks: Sequence[jobs.Job]) -> str:
    """Return the ID for one scancel: of a job, of a whole array, or of some of its tasks."""
    array_job_id = tasks[0].array_job_id
    if array_job_id is None or len(tasks) == 1:
        return str(tasks[0].job_id)
    rows = {job.row for job in tasks}
    with context.store.reading() as work:
        others = [job for job in work.jobs_of_tokens([tasks[0].token]) if job.row not in rows]
    # Of an array that was submitted by hand some tasks may be tracked alone, or not at all.
    if tasks[0].tracked_name is None and all(job.ended for job in others):
        return array_job_id
    numbers = slurm.fold_tasks(job.array_task_id or 0 for job in tasks)
    return f"{array_job_id}_[{numbers}]"


def _confirm(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    over: set[int],
    confirm_seconds: float,
) -> list[Cancelled]:
    """Look after 1, 2, 4 ... seconds, whatever the profile's floor: a person waits for it."""
    begun = context.clock()
    pause_seconds = 1.0
    while True:
        if not all(job.ended for job in wanted):
            refresh.refresh(context, floor_seconds=0)
        found = wishes.stored(context, wanted)
        left_seconds = confirm_seconds - (context.clock() - begun).total_seconds()
        pending = [job for job in found if not job.ended]
        if not pending or left_seconds <= 0:
            return [
                Cancelled(
                    job=job,
                    confirmed=job.ended,
                    already=job.row in over,
                )
                for job in found
            ]
        if pause_seconds == 1.0:
            names = wishes.names_of(pending)
            context.say(f"Waiting until {contexts.asked(pending)} shows the end of {names} ...")
        elif pause_seconds == 2.0:
            _cancel_renamed(context, pending)
        longest_seconds = 15.0
        if all(job.scheduler == "local" for job in pending):
            longest_seconds = refresh.LOCAL_FLOOR_SECONDS
        context.sleep(min(pause_seconds, left_seconds, longest_seconds))
        pause_seconds = min(pause_seconds * 2, 15.0)


def _cancel_renamed(context: contexts.Context, pending: Sequence[jobs.Job]) -> None:
    """Cancel by the name they have now the jobs that were renamed while they waited."""
    for tasks in _by_submission(pending):
        first = tasks[0]
        scheduler = contexts.at(context, first.scheduler).scheduler
        job_id = _asked_id(context, tasks)
        if "_" in job_id:
            # Was not asked for by its name.
            continue
        # Of an array the first record's name: one that waits is renamed as a whole.
        papers = scheduler.show_job(first.job_id or "")
        if papers is None or not identity.in_papers(context, first, papers):
            continue
        name = papers.get("JobName", "")
        if name and name != run_folder.name_in_slurm(first):
            scheduler.cancel(job_id, name)
