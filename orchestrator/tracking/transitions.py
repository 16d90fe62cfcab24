"""What one refresh changes about a job."""

from __future__ import annotations

import dataclasses

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking.records import Evidence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transition:
    """Fields of the job that change, attempts to store, and events to add."""

    changes: dict[str, object] = dataclasses.field(default_factory=dict)
    attempts: tuple[jobs.Attempt, ...] = ()
    events: tuple[jobs.JobEvent, ...] = ()

    def then(self, later: Transition) -> Transition:
        """Return both transitions as one."""
        return Transition(
            changes={**self.changes, **later.changes},
            attempts=(*self.attempts, *later.attempts),
            events=(*self.events, *later.events),
        )


def event(
    job: jobs.Job,
    evidence: Evidence,
    *,
    kind: str,
    detail: str,
    source: str = "controller",
    state: JobState | None = None,
    raw_state: str | None = None,
    attempt: int | None = None,
) -> jobs.JobEvent:
    """Return an event of the newest attempt, unless `attempt` is given."""
    return jobs.JobEvent(
        at=evidence.now,
        kind=kind,
        attempt=job.attempt if attempt is None else attempt,
        state=state,
        raw_state=raw_state,
        source=source,
        detail=detail,
    )
