"""Which of Slurm's records are a job's: by the token, and without one by what a reused ID lacks.

A job that was submitted by hand has no token. Its job ID may be given to another job once slurmctld
has lost or forgotten it; and its SubmitTime changes with each requeue (22.05 to 26.05), always
together with a restart count above zero. So a record is the job's when it has the same SubmitTime,
or a later one and was restarted; a new job has a later one and no restarts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from orchestrator import jobs, tracking
from orchestrator.controller.session import contexts
from orchestrator.tracking import run_folder

#: What `scontrol show job` says of a submission and no rename or requeue changes.
WITNESSES = ("Command", "WorkDir")


def of_queue(
    job: jobs.Job, by_id: Sequence[tracking.Observation]
) -> tuple[tracking.Observation, ...]:
    """Return those of squeue's rows with a tracked job's ID that are this job."""
    return tuple(row for row in by_id if row.name == job.tracked_name and may_be(job, row))


def may_be(job: jobs.Job, row: tracking.Observation) -> bool:
    """Return whether squeue's row can be that job at all; its name may have been changed."""
    if job.submitted_at is None or row.submitted_at is None:
        return False
    restarts = row.restart_count or 0
    if restarts < job.restart_count:
        return False
    # While it is COMPLETING its restart count has grown and its SubmitTime has not (24.11).
    return row.submitted_at == job.submitted_at or (
        restarts > 0 and row.submitted_at > job.submitted_at
    )


def in_papers(context: contexts.Context, job: jobs.Job, papers: Mapping[str, str]) -> bool:
    """Return whether `scontrol show job` tells of this job, whatever its name is by now."""
    if job.tracked_name is None:
        return job.token in " ".join(papers.values())
    with context.store.reading() as work:
        stored = work.jobs.submission_of(job.row)
    known = json.loads(stored.provenance)["slurm"]
    return all(papers.get(name) == known.get(name) for name in WITNESSES)


def is_sent(job: jobs.Job, row: tracking.Observation) -> bool:
    """Return whether the row is a job that we sent, whatever its name is by now."""
    return run_folder.token_of(row.name, row.stdout_path) == job.token or job.token in _words(row)


def of_accounts(
    job: jobs.Job, by_id: Sequence[tracking.Observation]
) -> tuple[tracking.Observation, ...]:
    """Return those of sacct's rows with the job's ID that are its attempts, oldest first."""
    # scontrol update NumNodes ends one row as RESIZING and begins the next; no new attempt.
    rows = [row for row in by_id if row.state is not jobs.JobState.RESIZING]
    rows.sort(key=lambda row: row.row_number)
    if job.tracked_name is None:
        return tuple(row for row in rows if job.token in _words(row))
    rows = [row for row in rows if row.submitted_at and row.submitted_at >= job.created_at]
    if not rows or rows[0].submitted_at != job.created_at:
        return ()
    return tuple(chain(rows))


def chain(rows: Sequence[tracking.Observation]) -> list[tracking.Observation]:
    """Return the first row and those behind it that a requeue made of it.

    What follows a row that never ended, or has another command line, is another job: slurmctld
    lost the first one, and gave its ID away.
    """
    found: list[tracking.Observation] = []
    for row in rows:
        if found and row.submit_line != found[0].submit_line:
            break
        found.append(row)
        if row.state not in jobs.TERMINAL and row.state is not jobs.JobState.REQUEUED:
            break
    return found


def _words(row: tracking.Observation) -> tuple[str, ...]:
    token = run_folder.split_name(row.name)[1]
    line = row.submit_line or ""
    return (token or "", *(part for word in line.split() for part in word.split(".")))
