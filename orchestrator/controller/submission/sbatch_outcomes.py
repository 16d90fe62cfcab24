"""Store the outcome of a call of sbatch: a job ID, a refusal, or that it is not known."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, jobs
from orchestrator.controller.metrics import log_paths
from orchestrator.controller.resubmission import submit_limit
from orchestrator.controller.session import contexts
from orchestrator.slurm import sbatch
from orchestrator.tracking import run_folder

#: Resets what another process may have stored when it took this submission for dead.
LIVE: Mapping[str, object] = {
    "settled": False,
    "reason": None,
    "misses": 0,
    "missing_since": None,
    "grace_since": None,
}
NOT_DEFERRED: Mapping[str, object] = {"resend_at": None, "refusals": 0}


def event(
    context: contexts.Context, detail: str, state: jobs.JobState, source: str = "sbatch"
) -> jobs.JobEvent:
    at = context.clock.now()
    return jobs.JobEvent(at=at, kind="submit", state=state, source=source, detail=detail)


def store_job_id(
    context: contexts.Context, job: jobs.Job, job_id: str, places: log_paths.LogPaths
) -> jobs.Job:
    """Store the job ID and return the job."""
    pending = jobs.JobState.PENDING
    submitted = event(context, f"sbatch answered {job_id}", pending)
    if context.is_local:
        submitted = event(context, f"in line on this machine as {job_id}", pending, "machine")
    try:
        # Not durable: if a power cut takes the ID away, the job is found by its token.
        with context.store.writing() as work:
            tasks = _without_id(work, job)
            work.jobs.change_many(
                [
                    (
                        task.row,
                        {
                            "state": pending,
                            "submitted_at": context.clock.now(),
                            **LIVE,
                            **NOT_DEFERRED,
                            **_ids(job, task.array_task_id, job_id, places),
                        },
                        None,
                    )
                    for task in tasks
                ]
            )
            work.events.add_many((task.row, submitted) for task in tasks)
            stored = _stored(work, job)
    except errors.DatabaseError as error:
        raise errors.DatabaseError(
            f"Slurm accepted the job as {job_id}, but its ID could not be stored: {error} "
            f"Do not submit it again: it is @{job.row}, and the next refresh finds it."
        ) from error
    _drop_environment(job)
    return stored


def _ids(
    job: jobs.Job, task: int | None, job_id: str, places: log_paths.LogPaths
) -> dict[str, object]:
    if task is None:
        # SLURM_JOB_ID of local-7 is 7.
        raw_job_id = job_id.removeprefix("local-")
        return {"job_id": job_id, "raw_job_id": raw_job_id, **places.paths(job, job_id)}
    # The raw job ID of an array task is known when the task starts.
    task_id = f"{job_id}_{task}"
    return {"job_id": task_id, "array_job_id": job_id, **places.paths(job, task_id)}


def stored_as(job: jobs.Job, outcome: sbatch.Outcome) -> str:
    """Return where a refused job is stored, and how to submit it again."""
    if outcome.kind not in submit_limit.FOR_NOW:
        return f"stored as @{job.row}"
    return (
        f"stored as @{job.row}; "
        f"`orchestrator resubmit --queue @{job.row}` submits it as soon as Slurm accepts it"
    )


def store_refusal(context: contexts.Context, job: jobs.Job, outcome: sbatch.Outcome) -> jobs.Job:
    """Store that Slurm refused the job, which is deferred if it was queued; return the job."""
    with context.store.writing() as work:
        current = _stored(work, job)
        changes: Mapping[str, object] = NOT_DEFERRED
        if outcome.kind in submit_limit.FOR_NOW and current.resend_at is not None:
            now = context.clock.now()
            changes = submit_limit.refused(current, outcome.cause, context.profile, now)
        stored = _store_not_submitted(
            context, work, job, outcome.sentence, {"reason": outcome.sentence, **changes}
        )
    if not stored.is_deferred:
        _drop_environment(job)
    return stored


def store_unsent(
    context: contexts.Context, job: jobs.Job, reason: str, *, keep_deferred: bool
) -> None:
    """Store that sbatch could not be started on this host."""
    with context.store.writing() as work:
        current = _stored(work, job)
        changes: Mapping[str, object] = {"reason": reason, **NOT_DEFERRED}
        if keep_deferred and current.resend_at is not None:
            changes = submit_limit.failed_on_host(
                current, socket.gethostname(), reason, context.profile, context.clock.now()
            )
        stored = _store_not_submitted(context, work, job, reason, changes)
    if not stored.is_deferred:
        _drop_environment(job)


def _store_not_submitted(
    context: contexts.Context,
    work: unit_of_work.UnitOfWork,
    job: jobs.Job,
    detail: str,
    changes: Mapping[str, object],
) -> jobs.Job:
    state = jobs.JobState.NOT_SUBMITTED
    changes = {**changes, "state": state, "settled": True}
    work.jobs.change_many([(task.row, changes, None) for task in _without_id(work, job)])
    unsubmitted = event(context, detail, state)
    work.events.add_many((task.row, unsubmitted) for task in work.jobs.tasks(job.token))
    return _stored(work, job)


def look_for(context: contexts.Context, job: jobs.Job, outcome: sbatch.Outcome) -> jobs.Job:
    """Store that the outcome is not known, look for the job once, and return it if Slurm has it.

    Raises SlurmError if Slurm does not show it.
    """
    # Rarely needed, and it loads many modules.
    from orchestrator.controller.refresh import refresh

    unknown = jobs.JobState.SUBMIT_UNKNOWN
    with context.store.writing(durable=True) as work:
        changes = {"state": unknown, **LIVE, "grace_since": context.clock.now()}
        work.jobs.change_many([(task.row, changes, None) for task in _without_id(work, job)])
        lost = event(context, outcome.sentence, unknown)
        work.events.add_many((task.row, lost) for task in work.jobs.tasks(job.token))
    refresh.refresh(context, floor_seconds=0)
    with context.store.reading() as work:
        current = _stored(work, job)
    if current.job_id is not None:
        return current
    raise errors.SlurmError(
        f"{outcome.sentence}\n"
        f"The job is @{job.row} in the database. Do not submit it again: "
        f"`orchestrator status @{job.row}` looks for it in Slurm."
    )


def _without_id(work: unit_of_work.UnitOfWork, job: jobs.Job) -> list[jobs.Task]:
    """Return the submission's jobs without a job ID: a refresh may have found some of them."""
    return [task for task in work.jobs.tasks(job.token) if task.job_id is None]


def _stored(work: unit_of_work.UnitOfWork, job: jobs.Job) -> jobs.Job:
    stored = work.jobs.get(job.row)
    assert stored is not None, "rows are never deleted"
    return stored


def _drop_environment(job: jobs.Job) -> None:
    run_folder.RunFolder(Path(job.run_dir)).drop_environment()
