"""Observations and records -> what is now known of a job. Pure: no clock, no I/O.

Order of belief (design section 3): live squeue, then the terminal sacct row of this attempt, then
the exit record. Empty is not gone: LOST and NOT_SUBMITTED need several good answers and a grace.
"""

from __future__ import annotations

import datetime

from orchestrator import jobs
from orchestrator.tracking import adopting, following
from orchestrator.tracking.following import (
    is_news,
    merged,
    needs_sacct,
    needs_steps,
    never_started,
)
from orchestrator.tracking.observations import Answers, Observation, Verdict, Witnesses

__all__ = [
    "Answers",
    "Observation",
    "Verdict",
    "Witnesses",
    "is_news",
    "judge",
    "merged",
    "needs_sacct",
    "needs_steps",
    "never_started",
]


def judge(
    job: jobs.Job,
    witnesses: Witnesses,
    answers: Answers,
    *,
    submitter_alive: bool,
    grace_seconds: float,
    now: datetime.datetime,
) -> Verdict:
    """Return what is now to be stored about `job`."""
    if job.job_id is None:
        return adopting.judge(
            job,
            witnesses,
            answers,
            submitter_alive=submitter_alive,
            grace_seconds=grace_seconds,
            now=now,
        )
    return following.judge(job, witnesses, answers, grace_seconds=grace_seconds, now=now)
