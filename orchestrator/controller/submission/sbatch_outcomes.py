"""Store the outcome of a call of sbatch: a job ID, a refusal, or that it is not known."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, jobs
from orchestrator.controller.session import contexts
from orchestrator.controller.submission import log_paths
from orchestrator.files import run_folder
from orchestrator.slurm import sbatch

#: Resets what another process may have stored when it took this submission for dead.
LIVE: Mapping[str, object] = {
    "settled": False,
    "reason": None,
    "misses": 0,
    "missing_since": None,
    "grace_since": None,
}
NOT_DEFERRED: Mapping[str, object] = {"resend_at": None, "refusals": 0}


def store_job_id(
    context: contexts.Context, job: jobs.Job, job_id: str, paths: log_paths.LogPaths
) -> jobs.Job:
    scheduler, detail, source = "Slurm", f"sbatch answered {job_id}", "sbatch"
    if context.is_local:
        scheduler, detail = "This machine", f"queued on this machine as {job_id}"
        source = "machine"
    submitted = context.event("submit", detail, source=source, state=jobs.JobState.PENDING)

    def changes(task: jobs.Job) -> Mapping[str, object]:
        if task.array_task_id is None:
            # SLURM_JOB_ID of local-7 is 7. The raw ID of an array task is known when it starts.
            ids = {"job_id": job_id, "raw_job_id": job_id.removeprefix("local-")}
        else:
            ids = {"job_id": f"{job_id}_{task.array_task_id}", "array_job_id": job_id}
        log_files = paths.paths(ids["job_id"])
        return {"submitted_at": submitted.at, **LIVE, **NOT_DEFERRED, **ids, **log_files}

    try:
        # Not durable: if a power cut takes the ID away, the job is found by its token.
        with context.store.writing() as work:
            stored = _store(work, job, submitted, changes)
    except errors.DatabaseError as error:
        raise errors.DatabaseError(
            f"{scheduler} accepted the job as {job_id}, but its ID could not be stored: {error} "
            f"Do not submit it again: it is @{job.row}, and the next refresh finds it."
        ) from error
    _drop_environment(job)
    return stored


def store_refusal(context: contexts.Context, job: jobs.Job, outcome: sbatch.Outcome) -> jobs.Job:
    """Store that Slurm refused the job, and return it if it is deferred; else raise SlurmError."""
    from orchestrator.slurm import deferral

    is_for_now = outcome.kind in deferral.FOR_NOW

    def deferred_fields(current: jobs.Job) -> Mapping[str, object]:
        if not is_for_now or current.resend_at is None:
            return NOT_DEFERRED
        return deferral.refused(current, outcome.cause, context.profile, context.clock.now())

    stored = _store_unsubmitted(context, job, outcome.sentence, deferred_fields)
    if stored.is_deferred:
        return stored
    advice = f"stored as @{job.row}"
    if is_for_now:
        advice += (
            f"; `orchestrator resubmit --queue @{job.row}` submits it as soon as Slurm accepts it"
        )
    raise errors.SlurmError(f"{outcome.sentence} ({advice})")


def store_unsent(
    context: contexts.Context, job: jobs.Job, reason: str, *, keep_deferred: bool
) -> None:
    """Store that sbatch could not be started on this host."""

    def deferred_fields(current: jobs.Job) -> Mapping[str, object]:
        if not keep_deferred or current.resend_at is None:
            return NOT_DEFERRED
        from orchestrator.slurm import deferral

        return deferral.failed_on_host(
            current, socket.gethostname(), reason, context.profile, context.clock.now()
        )

    _store_unsubmitted(context, job, reason, deferred_fields)


def _store_unsubmitted(
    context: contexts.Context,
    job: jobs.Job,
    reason: str,
    deferred_fields: Callable[[jobs.Job], Mapping[str, object]],
) -> jobs.Job:
    state = jobs.JobState.NOT_SUBMITTED
    unsubmitted = context.event("submit", reason, source="sbatch", state=state)
    with context.store.writing() as work:
        changes = {"reason": reason, "settled": True, **deferred_fields(_stored(work, job))}
        stored = _store(work, job, unsubmitted, lambda task: changes)
    if not stored.is_deferred:
        _drop_environment(job)
    return stored


def look_for(context: contexts.Context, job: jobs.Job, outcome: sbatch.Outcome) -> jobs.Job:
    """Store that the outcome is not known, look for the job once, and return it if Slurm has it.

    Raises SlurmError if Slurm does not show it.
    """
    # Rarely needed, and it loads many modules.
    from orchestrator.controller.refresh import refresh

    state = jobs.JobState.SUBMIT_UNKNOWN
    lost = context.event("submit", outcome.sentence, source="sbatch", state=state)
    with context.store.writing(durable=True) as work:
        _store(work, job, lost, lambda task: {**LIVE, "grace_since": lost.at})
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


def _store(
    work: unit_of_work.UnitOfWork,
    job: jobs.Job,
    event: jobs.JobEvent,
    changes: Callable[[jobs.Job], Mapping[str, object]],
) -> jobs.Job:
    """Change the submission's jobs that have no ID: a refresh may have found some of them."""
    stored = {task.row: task for task in work.jobs.of_submissions([job.token])}
    fields = {
        row: {"state": event.state, **changes(task)}
        for row, task in stored.items()
        if task.job_id is None
    }
    work.jobs.change_many([(row, changed, None) for row, changed in fields.items()])
    work.events.add_many((row, event) for row in fields)
    current = stored[job.row]
    if job.row not in fields:
        return current
    return dataclasses.replace(current, version=current.version + 1, **fields[job.row])  # type: ignore[arg-type]


def _stored(work: unit_of_work.UnitOfWork, job: jobs.Job) -> jobs.Job:
    stored = work.jobs.get(job.row)
    assert stored is not None, "rows are never deleted"
    return stored


def _drop_environment(job: jobs.Job) -> None:
    run_folder.RunFolder(Path(job.run_dir)).drop_environment()
