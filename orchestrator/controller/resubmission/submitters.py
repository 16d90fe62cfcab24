"""The process that is submitting a job: whether it is still at it."""

from __future__ import annotations

import datetime

from orchestrator import jobs
from orchestrator.controller.session import contexts
from orchestrator.local import processes

#: A submitter on another host cannot be checked; it gets the time limit of sbatch.
SUBMITTER_TIMEOUT_SECONDS = 200.0


def is_submitting(job: jobs.Job, now: datetime.datetime) -> bool:
    """Return whether another process may still be submitting the job."""
    if job.state is not jobs.JobState.SUBMITTING or job.submitter is None:
        return False
    if job.submitter == processes.this_process():
        # This process failed to store the outcome of an earlier attempt.
        return False
    is_alive = processes.is_alive(job.submitter)
    if is_alive is None:
        sent_at = job.grace_since or job.created_at
        return (now - sent_at).total_seconds() < SUBMITTER_TIMEOUT_SECONDS
    return is_alive


def disown(context: contexts.Context) -> None:
    """Store that this process submits nothing, so that others look for what it may have sent."""
    this_process = processes.this_process()
    query = jobs.JobQuery(live=True, states=(jobs.JobState.SUBMITTING,), limit=None)
    with context.store.writing() as work:
        own = [job for job in work.jobs.find(query) if job.submitter == this_process]
        work.jobs.change_many([(job.row, {"submitter": None}, job.version) for job in own])
