"""What became of a call of sbatch, stored: an ID, a refusal, or that it is not known."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from db import unit_of_work
from orchestrator import errors, jobs
from orchestrator.controller.metrics import log_paths
from orchestrator.controller.refresh import refresh
from orchestrator.controller.resubmission import submit_limit
from orchestrator.controller.session import contexts
from orchestrator.slurm import sbatch
from orchestrator.tracking import run_folder

#: What another process may have written about a submission that it took for dead.
FOUND: Mapping[str, object] = {
    "settled": False,
    "reason": None,
    "misses": 0,
    "missing_since": None,
    "grace_since": None,
}
#: What changes besides when Slurm has the job: it is not sent again.
SENT: Mapping[str, object] = {"resend_at": None, "refusals": 0}


def store_job_id(
    context: contexts.Context, job: jobs.Job, job_id: str, places: log_paths.LogPaths
) -> jobs.Job:
    """Store the ID that sbatch, or this machine, answered with; DatabaseError tells what to do."""
    try:
        stored = _write_job_id(context, job, job_id, places)
    except errors.DatabaseError as exc:
        raise errors.DatabaseError(
            f"Slurm took the job as {job_id}, but that could not be stored: {exc} "
            f"Do not submit it again: it is @{job.row}, and the next refresh finds it."
        ) from exc
    run_folder.RunFolder(Path(job.run_dir)).drop_environment()
    return stored


def _write_job_id(
    context: contexts.Context, job: jobs.Job, job_id: str, places: log_paths.LogPaths
) -> jobs.Job:
    common: dict[str, Any] = {
        "state": jobs.JobState.PENDING,
        "submitted_at": context.clock.now(),
        # Another host may have taken us for dead, and the job for never submitted.
        **FOUND,
        **SENT,
    }
    detail, source = f"sbatch answered {job_id}", "sbatch"
    if context.is_local:
        detail, source = f"in line on this machine as {job_id}", "machine"
    told = event(context, detail, jobs.JobState.PENDING, source)
    # Not durably: an answer that a power cut takes away is found by its token, as one that sbatch
    # could not give; and a busy disk took 6 ms for it.
    with context.store.writing() as work:
        if job.array_task_id is None:
            changes = {**common, **_ids(job, None, job_id, places)}
            if work.jobs.change(job.row, changes, version=job.version):
                # As mostly: nobody touched it while sbatch ran, so there is nothing to read.
                work.events.add(job.row, told)
                return dataclasses.replace(job, **changes, version=job.version + 1)
        unclaimed = _unclaimed(work, job)
        work.jobs.change_many(
            [
                (one.row, {**common, **_ids(job, one.array_task_id, job_id, places)}, None)
                for one in unclaimed
            ]
        )
        work.events.add_many((one.row, told) for one in unclaimed)
        stored = work.jobs.get(job.row)
    assert stored is not None, "a row that was just written"
    return stored


def _ids(
    job: jobs.Job, task: int | None, job_id: str, places: log_paths.LogPaths
) -> dict[str, object]:
    """Return what the ID that sbatch answered with is to the job, or to this task of its array."""
    if task is None:
        # SLURM_JOB_ID of local-7 is 7.
        raw_job_id = job_id.removeprefix("local-")
        return {"job_id": job_id, "raw_job_id": raw_job_id, **places.paths(job, job_id)}
    own = f"{job_id}_{task}"
    # The task's own number comes when it starts.
    return {"job_id": own, "array_job_id": job_id, **places.paths(job, own)}


def _unclaimed(work: unit_of_work.UnitOfWork, job: jobs.Job) -> list[jobs.Task]:
    """Return the submission's jobs for which nobody stored an ID yet.

    A refresh may have found them before us.
    """
    return [one for one in work.jobs.tasks(job.token) if one.job_id is None]


def kept(job: jobs.Job, outcome: sbatch.Outcome) -> str:
    """Return where a refused job is kept, and how it can still be sent."""
    if outcome.kind not in submit_limit.FOR_NOW:
        return f"kept as @{job.row}"
    return (
        f"kept as @{job.row}; "
        f"`orchestrator resubmit --queue @{job.row}` sends it when there is room"
    )


def store_refusal(context: contexts.Context, job: jobs.Job, outcome: sbatch.Outcome) -> jobs.Job:
    """Store why Slurm refused the job; one that is to wait for room waits from now on."""
    state = jobs.JobState.NOT_SUBMITTED
    changes: dict[str, object] = {"state": state, "reason": outcome.sentence, "settled": True}
    with context.store.writing() as work:
        current = work.jobs.get(job.row)
        assert current is not None, "rows are never deleted"
        waits = outcome.kind in submit_limit.FOR_NOW and current.resend_at is not None
        if current.job_id is None:
            now = context.clock.now()
            changes |= (
                submit_limit.refused(current, outcome.cause, context.profile, now)
                if waits
                else SENT
            )
            work.jobs.change_many([(one.row, changes, None) for one in _unclaimed(work, job)])
        told = event(context, outcome.sentence, state)
        work.events.add_many((one.row, told) for one in work.jobs.tasks(job.token))
        stored = work.jobs.get(job.row)
    assert stored is not None, "a row that was just written"
    if not stored.is_deferred:
        run_folder.RunFolder(Path(job.run_dir)).drop_environment()
    return stored


def store_unsent(context: contexts.Context, job: jobs.Job, why: str, *, again: bool) -> None:
    """Store that sbatch could not be started here."""
    state = jobs.JobState.NOT_SUBMITTED
    with context.store.writing() as work:
        current = work.jobs.get(job.row)
        assert current is not None, "rows are never deleted"
        waits = again and current.resend_at is not None
        changes: dict[str, object] = {"reason": why, **SENT}
        if waits:
            host, now = socket.gethostname(), context.clock.now()
            changes = submit_limit.not_from(current, host, why, context.profile, now)
        changes |= {"state": state, "settled": True}
        work.jobs.change_many([(one.row, changes, None) for one in _unclaimed(work, job)])
        told = event(context, why, state)
        work.events.add_many((one.row, told) for one in work.jobs.tasks(job.token))
    if not waits:
        run_folder.RunFolder(Path(job.run_dir)).drop_environment()


def look_for(context: contexts.Context, job: jobs.Job, outcome: sbatch.Outcome) -> jobs.Job:
    """Store that the outcome is unknown, look once, and return the job if Slurm has it."""
    state = jobs.JobState.SUBMIT_UNKNOWN
    with context.store.writing(durable=True) as work:
        changes = {"state": state, **FOUND, "grace_since": context.clock.now()}
        work.jobs.change_many([(one.row, changes, None) for one in _unclaimed(work, job)])
        told = event(context, outcome.sentence, state)
        work.events.add_many((one.row, told) for one in work.jobs.tasks(job.token))
    refresh.refresh(context, floor_seconds=0)
    with context.store.reading() as work:
        found = work.jobs.get(job.row)
    if found is not None and found.job_id is not None:
        return found
    raise errors.SlurmError(
        f"{outcome.sentence}\n"
        f"In the database it is @{job.row}. Do not submit it again: "
        f"`orchestrator status @{job.row}` goes on looking for it and says which it is."
    )


def event(
    context: contexts.Context, detail: str, state: jobs.JobState, source: str = "sbatch"
) -> jobs.JobEvent:
    at = context.clock.now()
    return jobs.JobEvent(at=at, kind="submit", state=state, source=source, detail=detail)
