"""Derives the stored state of a job from reports of Slurm and the run folder. No clock, no I/O.

Order of trust: live row of squeue, terminal row of sacct for this attempt, exit record. A missing
row proves nothing by itself: LOST and NOT_SUBMITTED need several successful queries and a grace.
"""

from __future__ import annotations

from orchestrator import jobs
from orchestrator.tracking import submitted_jobs, unconfirmed_jobs
from orchestrator.tracking.records import Evidence, Observation, Transition
from orchestrator.tracking.submitted_jobs import (
    is_news,
    is_steady,
    needs_sacct,
    needs_steps,
    never_started,
)
from orchestrator.tracking.updates import with_exact_exit_code


def decide(job: jobs.Job, evidence: Evidence) -> Transition:
    """Return what has to be stored about `job`."""
    if job.job_id is None:
        return unconfirmed_jobs.decide(job, evidence)
    return submitted_jobs.decide(job, evidence)
