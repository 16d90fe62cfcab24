"""Schedules and firings in the store: rows <-> records."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, cast

from sqlalchemy import orm

from db import schedules as queries
from db import service_tables
from orchestrator import schedules

State = Literal["active", "paused", "removed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """A schedule, less its long texts."""

    #: our own number
    row: int
    name: str
    state: State
    cron: str
    tz: str
    kind: Literal["job", "sweep"]
    #: the file that it was read from
    source: str
    #: SHA-256 of that file as it was then; none: there was no file
    source_hash: str | None
    #: where it was added
    folder: str
    profile: str
    cluster: str
    scheduler: Literal["slurm", "local"]
    catchup: Literal["latest", "skip", "all"]
    grace_seconds: int
    overlap: Literal["skip", "queue", "allow"]
    jitter_seconds: int
    #: its sweeps are held to this baseline; none: to those before
    baseline: str | None
    #: when it was added or taken anew
    created_at: datetime.datetime
    decided_until: datetime.datetime
    version: int

    @property
    def rule(self) -> schedules.Rule:
        """Return when it fires; ScheduleError where this host does not know its zone."""
        return schedules.Rule(
            name=self.name,
            calendar=schedules.Calendar(self.cron, self.tz),
            catchup=self.catchup,
            grace_seconds=self.grace_seconds,
            overlap=self.overlap,
            jitter_seconds=self.jitter_seconds,
            paused=self.state != "active",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Texts:
    """What a schedule submits, and with what."""

    #: of a sweep the file's keys with those of the command line, else the job's spec
    spec: Any
    #: variables of the shell where it was added
    environment: Mapping[str, str]
    #: command line
    argv: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Firing:
    """One planned time of a schedule and what became of it."""

    #: our own number
    row: int
    schedule_row: int
    planned_at: datetime.datetime
    due_at: datetime.datetime
    by_hand: bool
    state: Literal["waiting", "fired", "skipped", "failed"]
    reason: str | None
    decided_at: datetime.datetime
    sweep_row: int | None
    job_row: int | None
    verdict: str | None
    #: what the verdict is made of
    verdict_detail: Mapping[str, Any]
    verdict_at: datetime.datetime | None

    @property
    def waiting(self) -> schedules.Waiting:
        return schedules.Waiting(
            planned_at=self.planned_at, due_at=self.due_at, by_hand=self.by_hand, kept=self.reason
        )


_PLAIN = tuple(field.name for field in dataclasses.fields(Stored) if field.name != "row")


class ScheduleStore:
    """The schedules within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def add(self, texts: Texts, **fields: object) -> Stored:
        """Store a schedule; `fields` are of Stored."""
        row = service_tables.Schedule(**{"version": 0, **fields}, **_columns(texts))
        queries.add(self._db, row)
        return _record(row)

    def replace(self, stored: Stored, texts: Texts, **fields: object) -> bool:
        """Take a schedule anew, with its history; false where it was changed since."""
        changes = {**fields, **_columns(texts)}
        return queries.change(self._db, stored.row, changes, stored.version)

    def change(self, stored: Stored, **fields: object) -> bool:
        """Change fields of a schedule; false where it was changed since."""
        return queries.change(self._db, stored.row, fields, stored.version)

    def all(
        self, *, name: str | None = None, states: Collection[State] = ("active", "paused")
    ) -> list[Stored]:
        """Return schedules, oldest first."""
        return [_record(row) for row in queries.schedules(self._db, name=name, states=states)]

    def get(self, row: int) -> Stored | None:
        found = queries.schedule(self._db, row)
        return None if found is None else _record(found)

    def texts(self, row: int) -> Texts:
        """Return what a stored schedule submits."""
        found = queries.schedule(self._db, row)
        assert found is not None, "schedules are never deleted"
        return Texts(
            spec=json.loads(found.spec),
            environment=json.loads(found.environment),
            argv=tuple(json.loads(found.argv)),
        )

    def store_decided(self, stored: Stored, decided: schedules.Decided, now: object) -> bool:
        """Store what was decided; false, and nothing, where the schedule was changed since."""
        if not queries.change(
            self._db, stored.row, {"decided_until": decided.until}, stored.version
        ):
            return False
        rows = [
            {
                "schedule_id": stored.row,
                "planned_at": one.planned_at,
                "due_at": one.due_at,
                "by_hand": False,
                "state": one.state,
                "reason": one.reason,
                "decided_at": now,
            }
            for one in decided.planned
        ]
        queries.add_firings(self._db, rows)
        return True

    def add_by_hand(self, stored: Stored, now: datetime.datetime) -> Firing:
        """Store a firing that a person asked for: of this second, or the next that is free."""
        at = now.replace(microsecond=0)
        taken = {
            one.planned_at
            for one in queries.firings(self._db, schedule_id=stored.row, planned_since=at)
        }
        # Whole minutes are those of the expression.
        while at.second == 0 or at in taken:
            at += datetime.timedelta(seconds=1)
        row = {
            "schedule_id": stored.row,
            "planned_at": at,
            "due_at": now,
            "by_hand": True,
            "state": "waiting",
            "decided_at": now,
        }
        return _firing(queries.add_firing(self._db, row))

    def firing(self, row: int) -> Firing:
        found = queries.firing(self._db, row)
        assert found is not None, "firings are never deleted"
        return _firing(found)

    def waiting(self) -> list[Firing]:
        """Return the firings that wait, those planned first first."""
        return _firings(reversed(queries.firings(self._db, states=("waiting",))))

    def newest_planned(self, row: int) -> datetime.datetime | None:
        """Return the last planned time of a schedule that was decided; none by hand."""
        return queries.newest_planned(self._db, row)

    def unjudged(self, schedule_row: int | None = None) -> list[Firing]:
        """Return what fired and has no verdict, those planned first first."""
        found = queries.firings(
            self._db, schedule_id=schedule_row, states=("fired",), unjudged=True
        )
        return _firings(reversed(found))

    def history(self, row: int, *, limit: int | None = None) -> list[Firing]:
        """Return the firings of a schedule, those planned last first."""
        return _firings(queries.firings(self._db, schedule_id=row, limit=limit))

    def measures_for(
        self, firing: Firing, stored: Stored, *, unlike: Collection[str], limit: int
    ) -> list[Firing]:
        """Return the newest firings that this one is held to: judged, and not one of `unlike`."""
        found = queries.firings(
            self._db,
            schedule_id=stored.row,
            states=("fired",),
            judged_unlike=unlike,
            decided_since=stored.created_at,
            planned_before=firing.planned_at,
            limit=limit,
        )
        return _firings(found)

    def change_firing(self, firing: Firing, **fields: object) -> bool:
        """Change fields of a firing; false where it is in another state by now, or judged."""
        if "sweep_row" in fields:
            fields["sweep_id"] = fields.pop("sweep_row")
        return queries.change_firing(self._db, firing.row, fields, state=firing.state)


def _columns(texts: Texts) -> dict[str, str]:
    return {
        # What TOML has and JSON lacks, times and dates, no key of a spec takes.
        "spec": json.dumps(texts.spec, default=str, ensure_ascii=False),
        "environment": json.dumps(dict(texts.environment)),
        "argv": json.dumps(list(texts.argv)),
    }


def _record(row: service_tables.Schedule) -> Stored:
    values: dict[str, Any] = {name: getattr(row, name) for name in _PLAIN}
    return Stored(row=row.id, **values)


def _firings(rows: Iterable[service_tables.Firing]) -> list[Firing]:
    return [_firing(row) for row in rows]


def _firing(row: service_tables.Firing) -> Firing:
    return Firing(
        row=row.id,
        schedule_row=row.schedule_id,
        planned_at=row.planned_at,
        due_at=row.due_at,
        by_hand=row.by_hand,
        state=cast(Any, row.state),
        reason=row.reason,
        decided_at=row.decided_at,
        sweep_row=row.sweep_id,
        job_row=row.job_row,
        verdict=row.verdict,
        verdict_detail=json.loads(row.verdict_detail or "{}"),
        verdict_at=row.verdict_at,
    )
