"""Which records of Slurm are a job's: by the token, and without a token by what a new job lacks.

A job that was submitted by hand has no token. Its job ID may be given to another job once slurmctld
has lost or forgotten it; and its SubmitTime changes with each requeue (22.05 to 26.05), always
together with a restart count above zero. So a record is the job's if it has the same SubmitTime, or
a later one and was restarted; a new job has a later one and no restarts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from orchestrator import jobs, tracking
from orchestrator.controller.session import contexts
from orchestrator.files import run_folder

#: Fields of `scontrol show job` that neither a rename nor a requeue changes.
CONSTANT_FIELDS = ("Command", "WorkDir")


def rows_in_squeue(
    job: jobs.Job, rows: Sequence[tracking.Observation]
) -> tuple[tracking.Observation, ...]:
    """Return those of the rows with a tracked job's ID that are this job."""
    return tuple(row for row in rows if row.name == job.tracked_name and may_be(job, row))


def may_be(job: jobs.Job, row: tracking.Observation) -> bool:
    """Return whether a row of squeue can be this tracked job; its name may have been changed."""
    if job.submitted_at is None or row.submitted_at is None:
        return False
    restarts = row.restart_count or 0
    if restarts < job.restart_count:
        return False
    # While it is COMPLETING its restart count has grown and its SubmitTime has not (24.11).
    return row.submitted_at == job.submitted_at or (
        restarts > 0 and row.submitted_at > job.submitted_at
    )


def is_record_of(context: contexts.Context, job: jobs.Job, record: Mapping[str, str]) -> bool:
    """Return whether a record of `scontrol show job` is of this job, whatever its name is now."""
    if job.tracked_name is None:
        return job.token in " ".join(record.values())
    with context.store.reading() as work:
        submission = work.jobs.submission_of(job.row)
    known = json.loads(submission.provenance)["slurm"]
    return all(record.get(name) == known.get(name) for name in CONSTANT_FIELDS)


def has_token(job: jobs.Job, row: tracking.Observation) -> bool:
    """Return whether a row is a job that orchestrator submitted, whatever its name is now."""
    token = run_folder.token_of(row.name, row.stdout_path)
    return token == job.token or job.token in _words(row)


def rows_in_sacct(
    job: jobs.Job, rows: Sequence[tracking.Observation]
) -> tuple[tracking.Observation, ...]:
    """Return those of the rows with the job's ID that are its attempts, oldest first."""
    # scontrol update NumNodes ends one row as RESIZING and starts the next; no new attempt.
    ordered = sorted(
        (row for row in rows if row.state is not jobs.JobState.RESIZING),
        key=lambda row: row.row_number,
    )
    if job.tracked_name is None:
        return tuple(row for row in ordered if job.token in _words(row))
    ordered = [row for row in ordered if row.submitted_at and row.submitted_at >= job.created_at]
    if not ordered or ordered[0].submitted_at != job.created_at:
        return ()
    return tuple(attempts(ordered))


def attempts(rows: Sequence[tracking.Observation]) -> list[tracking.Observation]:
    """Return the first row and the following ones that are its requeues.

    A row after one that never ended, or with another command line, is another job: slurmctld lost
    the first one and gave its ID away.
    """
    same_job: list[tracking.Observation] = []
    for row in rows:
        if same_job and row.submit_line != same_job[0].submit_line:
            break
        same_job.append(row)
        if row.state not in jobs.TERMINAL and row.state is not jobs.JobState.REQUEUED:
            break
    return same_job


def _words(row: tracking.Observation) -> tuple[str, ...]:
    token = run_folder.split_name(row.name)[1]
    line = row.submit_line or ""
    return (token or "", *(part for word in line.split() for part in word.split(".")))
