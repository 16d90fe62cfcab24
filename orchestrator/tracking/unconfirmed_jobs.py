"""A job whose ID is unknown: it is adopted, still searched for, or was never submitted."""

from __future__ import annotations

import dataclasses

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking import submitted_jobs
from orchestrator.tracking.records import Evidence, Observation
from orchestrator.tracking.transitions import Transition, event


def decide(job: jobs.Job, evidence: Evidence) -> Transition:
    rows = (*evidence.squeue, *evidence.sacct)
    refused = [row for row in rows if submitted_jobs.never_started(row)]
    accepted = [row for row in rows if not submitted_jobs.never_started(row)]
    row = submitted_jobs.choose(accepted, evidence.owner)
    if row is not None:
        return _adopt_row(job, row, accepted, evidence)
    if evidence.array_job_id is not None:
        # Slurm has the array, but no record of this task any more.
        task_id = f"{evidence.array_job_id}_{job.array_task_id}"
        ids: dict[str, object] = {"job_id": task_id, "array_job_id": evidence.array_job_id}
        detail = f"job {task_id}, because Slurm shows other tasks of its array"
        adopted = event(job, evidence, kind="adopt", detail=detail)
        bound = dataclasses.replace(
            job, job_id=task_id, array_job_id=evidence.array_job_id, misses=0, missing_since=None
        )
        return Transition(
            changes={**ids, "grace_since": None, "resend_at": None}, events=(adopted,)
        ).then(submitted_jobs.decide(bound, evidence))
    if evidence.owner is not None:
        # The script ran, so Slurm accepted the job; squeue has forgotten it since.
        detail = f"job {evidence.owner}, found by its owner file"
        adopted = event(job, evidence, kind="adopt", source="record", detail=detail)
        bound = dataclasses.replace(job, job_id=evidence.owner, raw_job_id=evidence.owner)
        ids = {"job_id": evidence.owner, "raw_job_id": evidence.owner, "resend_at": None}
        return Transition(changes=ids, events=(adopted,)).then(
            submitted_jobs.decide(bound, evidence)
        )
    if evidence.submitter_alive or job.state is JobState.NOT_SUBMITTED:
        return Transition()
    if refused:
        why = refused[0].reason or "no node satisfies the request"
        return _not_submitted(job, evidence, f"Slurm refused it: {why}", resend_at=None)
    if job.state is JobState.SUBMITTING or job.grace_since is None:
        detail = (
            "the submitting process ended before it stored the result of sbatch; searching for the "
            "job in Slurm"
        )
        changes = {
            "state": JobState.SUBMIT_UNKNOWN,
            "grace_since": evidence.now,
            "misses": 0,
            "missing_since": None,
        }
        unknown = event(job, evidence, kind="submit", detail=detail, state=JobState.SUBMIT_UNKNOWN)
        return Transition(changes=changes, events=(unknown,))
    if evidence.now < job.grace_since:
        # Written by a process whose clock was ahead: the grace would last until then.
        return Transition(changes={"grace_since": evidence.now})
    if evidence.squeue_at <= job.grace_since:
        return Transition()
    # The grace counts from the first successful squeue: before it slurmctld may have been away with
    # the request still in its queue. A failed squeue starts the count again (controller/refresh).
    missing = submitted_jobs.Missing.after(job, evidence)
    if missing.is_long_enough and (evidence.sacct_queried or not evidence.accounting):
        detail = f"Slurm does not have the job: {missing} did not list it"
        return _not_submitted(job, evidence, detail)
    return Transition(changes=missing.changes)


def _adopt_row(
    job: jobs.Job, row: Observation, accepted: list[Observation], evidence: Evidence
) -> Transition:
    detail = f"job {row.job_id}, found by its token"
    events = [event(job, evidence, kind="adopt", source=row.source, detail=detail)]
    others = sorted({each.job_id for each in accepted} - {row.job_id})
    if others:
        detail = f"also with this token: {', '.join(others)}; the task lock lets only one job run"
        events.append(event(job, evidence, kind="duplicate", source=row.source, detail=detail))
    changes: dict[str, object] = {
        "job_id": row.job_id,
        "raw_job_id": row.raw_job_id,
        "array_job_id": row.array_job_id,
        "submitted_at": row.submitted_at,
        "grace_since": None,
        "resend_at": None,
    }
    adopted = dataclasses.replace(job, job_id=row.job_id, raw_job_id=row.raw_job_id)
    return Transition(changes=changes, events=tuple(events)).then(
        submitted_jobs.decide(adopted, evidence.only(row.job_id))
    )


def _not_submitted(job: jobs.Job, evidence: Evidence, detail: str, **changes: object) -> Transition:
    state = JobState.NOT_SUBMITTED
    return Transition(
        changes={
            "state": state,
            "reason": detail,
            "settled": True,
            "observed_at": evidence.now,
            **changes,
        },
        events=(event(job, evidence, kind="submit", detail=detail, state=state),),
    )
