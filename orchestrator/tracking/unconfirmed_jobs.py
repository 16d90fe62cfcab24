"""A job whose ID is unknown: it is adopted, still searched for, or was never submitted."""

from __future__ import annotations

import dataclasses

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking import submitted_jobs
from orchestrator.tracking.records import Evidence, Observation, Transition, event


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
        detail = f"job {task_id}, because Slurm shows other tasks of its array"
        ids = {"job_id": task_id, "array_job_id": evidence.array_job_id}
        return submitted_jobs.adopt(job, evidence, detail, source="controller", **ids)
    if evidence.owner is not None:
        # The script ran, so Slurm accepted the job; squeue has forgotten it since.
        detail = f"job {evidence.owner}, found by its owner file"
        ids = {"job_id": evidence.owner, "raw_job_id": evidence.owner}
        return submitted_jobs.adopt(job, evidence, detail, source="record", **ids)
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
        state = JobState.SUBMIT_UNKNOWN
        start = {"grace_since": evidence.now, "misses": 0, "missing_since": None}
        unknown = event(job, evidence, "submit", detail, state=state)
        return Transition(changes={"state": state, **start}, events=(unknown,))
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
    ids = submitted_jobs.ids_of(row)
    adopted = submitted_jobs.adopt(job, evidence, detail, source=row.source, **ids)
    other_ids = sorted({each.job_id for each in accepted} - {row.job_id})
    if not other_ids:
        return adopted
    detail = f"also with this token: {', '.join(other_ids)}; the task lock lets only one job run"
    duplicate = event(job, evidence, "duplicate", detail, source=row.source)
    first, *later = adopted.events
    return dataclasses.replace(adopted, events=(first, duplicate, *later))


def _not_submitted(job: jobs.Job, evidence: Evidence, detail: str, **changes: object) -> Transition:
    state = JobState.NOT_SUBMITTED
    changes |= {"state": state, "reason": detail, "settled": True, "observed_at": evidence.now}
    return Transition(
        changes=changes, events=(event(job, evidence, "submit", detail, state=state),)
    )
