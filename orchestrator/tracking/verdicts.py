"""Building verdicts: events, and two verdicts one after the other."""

from __future__ import annotations

import datetime

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking.observations import Verdict


def event(
    job: jobs.Job,
    at: datetime.datetime,
    kind: str,
    source: str,
    detail: str,
    state: JobState | None = None,
    raw_state: str | None = None,
) -> jobs.JobEvent:
    return jobs.JobEvent(
        at=at,
        kind=kind,
        attempt=job.attempt,
        state=state,
        raw_state=raw_state,
        source=source,
        detail=detail,
    )


def joined(first: Verdict, second: Verdict) -> Verdict:
    return Verdict(
        changes={**first.changes, **second.changes},
        attempts=(*first.attempts, *second.attempts),
        events=(*first.events, *second.events),
    )
