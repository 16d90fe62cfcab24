"""Who is submitting a job at this moment, and who was when it was ended."""

from __future__ import annotations

import datetime

from orchestrator import jobs
from orchestrator.controller.session import contexts
from orchestrator.local import processes

#: A submitter on another host cannot be looked at: it is given all of sbatch's time-out.
SUBMITTER_TIMEOUT_SECONDS = 200.0


def is_submitting(job: jobs.Job, now: datetime.datetime) -> bool:
    """Return whether the process that is submitting the job may still be at it."""
    if job.state is not jobs.JobState.SUBMITTING or job.submitter is None:
        return False
    if job.submitter == processes.this_process():
        # Who looks does not submit: the controller could not store what became of an earlier try.
        return False
    alive = processes.is_alive(job.submitter)
    if alive is None:
        sent_at = job.grace_since or job.created_at
        return (now - sent_at).total_seconds() < SUBMITTER_TIMEOUT_SECONDS
    return alive


def disown(context: contexts.Context) -> None:
    """Store that this process submits nothing, so that others look for what it may have sent."""
    me = processes.this_process()
    query = jobs.JobQuery(live=True, states=(jobs.JobState.SUBMITTING,), limit=None)
    with context.store.writing() as work:
        mine = [job for job in work.jobs.find(query) if job.submitter == me]
        work.jobs.change_many([(job.row, {"submitter": None}, job.version) for job in mine])
