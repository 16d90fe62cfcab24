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

    An array that was never submitted is sent as a whole or not at all: with one of its tasks all
    are taken back. Raises ConflictError for a job whose submission is not settled yet: there is no
    ID to cancel.
    """
    wanted = _with_unsent_tasks(context, wanted)
    over = {job.row for job in wanted if job.ended}
    wanted = [_taken_back(context, job) for job in wanted]
    for job in wanted:
        if job.job_id is None and not job.ended:
            raise errors.ConflictError(
                f"@{job.row} has no job ID yet ({job.state}); `orchestrator status @{job.row}` "
                "finds out whether Slurm has it, then cancel it"
            )
    live = [job for job in wanted if not job.ended and job.job_id is not None]
    for tasks in _by_submission(live):
        first = tasks[0]
        # With the name as well as the ID, a reused ID never hits another job.
        context.slurm.cancel(_asked_id(context, tasks), run_folder.name_in_slurm(first))
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
                        detail="scancel was asked",
                    ),
                )
                for job in tasks
            )
    return _confirm(context, wanted, over, confirm_seconds)


def _with_unsent_tasks(context: contexts.Context, wanted: Sequence[jobs.Job]) -> list[jobs.Job]:
    unsent = {job.token for job in wanted if job.job_id is None and job.array_task_id is not None}
    if not unsent:
        return list(wanted)
    with context.store.reading() as work:
        tasks = [job for job in work.jobs_of_tokens(sorted(unsent)) if job.job_id is None]
    return list({job.row: job for job in [*wanted, *tasks]}.values())


def _taken_back(context: contexts.Context, job: jobs.Job) -> jobs.Job:
    """Return the job as it is when it is not sent (again) by itself any more."""
    if job.job_id is not None or job.resend_at is None:
        return job
    with context.store.writing() as work:
        now = work.job(job.row)
        assert now is not None, "rows are never deleted"
        if now.job_id is None and now.resend_at is not None:
            changes: dict[str, object] = {"resend_at": None, "refusals": 0}
            if now.waits_for_room:
                changes["reason"] = "cancelled before it was submitted"
            work.change_job(job.row, changes, version=now.version)
            event = jobs.JobEvent(
                at=context.clock(), kind="cancel", source="user", detail="not sent again"
            )
            work.add_event(job.row, event)
        found = work.job(job.row)
    assert found is not None, "rows are never deleted"
    if found.ended:
        run_folder.RunFolder(Path(job.run_dir)).drop_environment()
    return found


def _by_submission(wanted: Iterable[jobs.Job]) -> list[list[jobs.Job]]:
    found: dict[str, list[jobs.Job]] = {}
    for job in wanted:
        found.setdefault(job.token, []).append(job)
    return list(found.values())


def _asked_id(context: contexts.Context, tasks: Sequence[jobs.Job]) -> str:
    """Return the ID for one scancel: of a job, of a whole array, or of some of its tasks."""
    array_job_id = tasks[0].array_job_id
    if array_job_id is None or len(tasks) == 1:
        return str(tasks[0].job_id)
    rows = {job.row for job in tasks}
    with context.store.reading() as work:
        others = [job for job in work.jobs_of_tokens([tasks[0].token]) if job.row not in rows]
    if all(job.ended for job in others):
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
            context.say(f"Waiting until Slurm shows the end of {wishes.names_of(pending)} ...")
        elif pause_seconds == 2.0:
            _cancel_renamed(context, pending)
        context.sleep(min(pause_seconds, left_seconds))
        pause_seconds = min(pause_seconds * 2, 15.0)


def _cancel_renamed(context: contexts.Context, pending: Sequence[jobs.Job]) -> None:
    """Cancel by the name they have now the jobs that were renamed while they waited."""
    for tasks in _by_submission(pending):
        first = tasks[0]
        job_id = _asked_id(context, tasks)
        # Of an array the first record's name: one that waits is renamed as a whole.
        papers = context.slurm.show_job(first.job_id or "")
        if papers is None or not identity.in_papers(context, first, papers):
            continue
        name = papers.get("JobName", "")
        if name and name != run_folder.name_in_slurm(first):
            context.slurm.cancel(job_id, name)
