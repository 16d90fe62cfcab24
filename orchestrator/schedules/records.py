"""Schedules, and the triggers of their planned times."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from orchestrator.schedules import calendars

Catchup = Literal["latest", "skip", "all"]
Overlap = Literal["skip", "queue", "allow"]
ScheduleState = Literal["active", "paused", "removed"]
TriggerState = Literal["waiting", "fired", "skipped", "failed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    planned_at: datetime.datetime
    due_at: datetime.datetime
    state: Literal["waiting", "skipped"]
    reason: str | None = None
    #: the first of the skipped planned times that this entry stands for; None: only its own
    first_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decided:
    """What was decided about all planned times of an interval."""

    planned: tuple[Planned, ...]
    #: all planned times up to here are decided
    until: datetime.datetime
    #: there are further planned times up to now
    more: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule without its payload."""

    row: int
    name: str
    state: ScheduleState
    cron: str
    tz: str
    kind: Literal["job", "sweep"]
    #: path of the file that it was read from
    source: str
    #: SHA-256 of that file when it was read; None: there was no file
    source_hash: str | None
    #: folder in which it was added
    folder: str
    profile: str
    cluster: str
    scheduler: Literal["slurm", "local"]
    #: which of several missed planned times fire: the latest, none or all
    catchup: Catchup
    #: a planned time is missed when it is this late
    grace_seconds: int
    #: what happens while jobs of an earlier trigger have not ended
    overlap: Overlap
    #: a trigger is due at most this long after its planned time
    jitter_seconds: int
    #: baseline that its results are compared with; None: results of earlier triggers
    baseline: str | None
    #: when it was added or replaced
    created_at: datetime.datetime
    decided_until: datetime.datetime
    version: int

    @functools.cached_property
    def calendar(self) -> calendars.Calendar:
        """Raises ScheduleError if this host does not know the time zone."""
        return calendars.Calendar(self.cron, self.tz)

    @property
    def is_paused(self) -> bool:
        return self.state != "active"

    def next_at(self, after: datetime.datetime) -> datetime.datetime | None:
        """Return the first undecided planned time after a moment; None: none, or not active."""
        if self.state != "active":
            return None
        return next(self.calendar.after(max(after, self.decided_until)), None)

    def due(self, planned_at: datetime.datetime) -> datetime.datetime:
        """Return the planned time plus its jitter, which is the same at each call."""
        if not self.jitter_seconds:
            return planned_at
        text = f"{self.name} {planned_at.astimezone(datetime.UTC).isoformat()}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return planned_at + datetime.timedelta(seconds=number % (self.jitter_seconds + 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Payload:
    #: for a sweep: the keys of the file and of the command line; for a job: its spec
    spec: Any
    #: variables of the shell in which the schedule was added
    environment: Mapping[str, str]
    #: command line
    argv: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trigger:
    """One planned time of a schedule, and what it led to."""

    row: int
    schedule_row: int
    planned_at: datetime.datetime
    due_at: datetime.datetime
    #: requested by `schedule run`; neither grace nor pause hold it back
    by_hand: bool = False
    state: TriggerState = "waiting"
    #: why it is skipped, failed or still waiting
    reason: str | None = None
    decided_at: datetime.datetime
    sweep_row: int | None = None
    job_row: int | None = None
    verdict: str | None = None
    #: the figures behind the verdict
    verdict_detail: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    verdict_at: datetime.datetime | None = None
