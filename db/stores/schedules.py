"""Schedules and their triggers."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from db import queries
from db.tables.service import FIRINGS, SCHEDULES
from orchestrator.schedules import records

_SCHEDULE, _TRIGGER = SCHEDULES.c, FIRINGS.c
#: Columns whose names differ from those of the records.
_COLUMNS = {"row": "id", "schedule_row": "schedule_id", "sweep_row": "sweep_id"}
_SCHEDULE_FIELDS = [field.name for field in dataclasses.fields(records.Schedule)]
_TRIGGER_FIELDS = [field.name for field in dataclasses.fields(records.Trigger)]
_SELECT_SCHEDULES = sa.select(
    *(_SCHEDULE[_COLUMNS.get(name, name)].label(name) for name in _SCHEDULE_FIELDS)
)
_SELECT_TRIGGERS = sa.select(
    *(_TRIGGER[_COLUMNS.get(name, name)].label(name) for name in _TRIGGER_FIELDS)
)
_HAS_NO_VERDICT = _TRIGGER.verdict_at.is_(None)


class ScheduleStore(queries.Store):
    """The schedules within one transaction. Neither schedules nor triggers are ever deleted."""

    def add(self, payload: records.Payload, **fields: object) -> records.Schedule:
        """Store a schedule; `fields` are those of Schedule."""
        values = {"version": 0, **fields, **_payload_columns(payload)}
        return self.get(self._insert(SCHEDULES, values))

    def change(
        self, schedule: records.Schedule, payload: records.Payload | None = None, **fields: object
    ) -> bool:
        """Change fields of a schedule, and its payload; return False if it changed meanwhile."""
        is_same = _SCHEDULE.id == schedule.row, _SCHEDULE.version == schedule.version
        values = {**fields, **(_payload_columns(payload) if payload else {})}
        values["version"] = schedule.version + 1
        return self._changed(sa.update(SCHEDULES).where(*is_same).values(values)) == 1

    def all(
        self,
        *,
        name: str | None = None,
        states: Collection[records.ScheduleState] = ("active", "paused"),
    ) -> list[records.Schedule]:
        """Return schedules, oldest first."""
        statement = _SELECT_SCHEDULES.where(_SCHEDULE.state.in_(states)).order_by(_SCHEDULE.id)
        if name is not None:
            statement = statement.where(_SCHEDULE.name == name)
        return [records.Schedule(**row._mapping) for row in self._rows(statement)]

    def get(self, row: int) -> records.Schedule:
        schedule = self._connection.execute(_SELECT_SCHEDULES.where(_SCHEDULE.id == row)).one()
        return records.Schedule(**schedule._mapping)

    def payload(self, row: int) -> records.Payload:
        """Return what a schedule submits."""
        columns = _SCHEDULE.spec, _SCHEDULE.environment, _SCHEDULE.argv
        statement = sa.select(*columns).where(_SCHEDULE.id == row)
        spec, environment, argv = map(json.loads, self._connection.execute(statement).one())
        return records.Payload(spec=spec, environment=environment, argv=tuple(argv))

    def add_triggers(
        self, schedule: records.Schedule, decided: records.Decided, now: datetime.datetime
    ) -> bool:
        """Store a trigger for each planned time; return False if the schedule changed meanwhile."""
        if not self.change(schedule, decided_until=decided.until):
            return False
        rows = [
            {
                "schedule_id": schedule.row,
                "planned_at": planned.planned_at,
                "due_at": planned.due_at,
                "by_hand": False,
                "state": planned.state,
                "reason": planned.reason,
                "decided_at": now,
            }
            for planned in decided.planned
        ]
        if rows:
            self._connection.execute(sa.insert(FIRINGS), rows)
        return True

    def add_trigger_by_hand(
        self, schedule: records.Schedule, now: datetime.datetime
    ) -> records.Trigger:
        """Store a trigger that is due now; its planned time is the next free second."""
        at = now.replace(microsecond=0)
        of_schedule = _TRIGGER.schedule_id == schedule.row
        later = sa.select(_TRIGGER.planned_at).where(of_schedule, _TRIGGER.planned_at >= at)
        taken = set(self._connection.scalars(later))
        # Whole minutes belong to the cron expression.
        while at.second == 0 or at in taken:
            at += datetime.timedelta(seconds=1)
        values = {
            "schedule_id": schedule.row,
            "planned_at": at,
            "due_at": now,
            "by_hand": True,
            "state": "waiting",
            "decided_at": now,
        }
        return self.trigger(self._insert(FIRINGS, values))

    def trigger(self, row: int) -> records.Trigger:
        return _trigger(self._connection.execute(_SELECT_TRIGGERS.where(_TRIGGER.id == row)).one())

    def triggers(self, schedule_row: int, *, limit: int | None = None) -> list[records.Trigger]:
        """Return the triggers of a schedule, latest planned time first."""
        return self._triggers(_TRIGGER.schedule_id == schedule_row, limit=limit)

    def waiting_triggers(self) -> list[records.Trigger]:
        """Return the pending triggers, earliest planned time first."""
        return self._triggers(_TRIGGER.state == "waiting")[::-1]

    def triggers_without_verdict(self, schedule_row: int | None = None) -> list[records.Trigger]:
        """Return the triggers that fired and have no verdict, earliest planned time first."""
        conditions = [_TRIGGER.state == "fired", _HAS_NO_VERDICT]
        if schedule_row is not None:
            conditions.append(_TRIGGER.schedule_id == schedule_row)
        return self._triggers(*conditions)[::-1]

    def triggers_to_compare(
        self,
        trigger: records.Trigger,
        schedule: records.Schedule,
        *,
        except_verdicts: Collection[str],
        limit: int,
    ) -> list[records.Trigger]:
        """Return the latest triggers before this one whose results it is compared with."""
        return self._triggers(
            _TRIGGER.schedule_id == schedule.row,
            _TRIGGER.state == "fired",
            _TRIGGER.verdict.not_in(except_verdicts),
            _TRIGGER.decided_at >= schedule.created_at,
            _TRIGGER.planned_at < trigger.planned_at,
            limit=limit,
        )

    def recent_triggers(
        self, since: datetime.datetime, limit: int
    ) -> list[tuple[records.Trigger, str]]:
        """Return triggers decided or checked since a time, oldest first, with schedule names.

        Only the newest `limit` triggers are searched.
        """
        newest = sa.select(_TRIGGER.id).order_by(_TRIGGER.id.desc()).limit(limit)
        statement = (
            _SELECT_TRIGGERS.add_columns(_SCHEDULE.name)
            .join_from(FIRINGS, SCHEDULES)
            .where(_TRIGGER.id.in_(newest))
            .where(sa.or_(_TRIGGER.decided_at >= since, _TRIGGER.verdict_at >= since))
            .order_by(_TRIGGER.id)
        )
        return [(_trigger(row), row.name) for row in self._rows(statement)]

    def submitted_any(self, job_rows: Collection[int]) -> bool:
        """Return whether one of these jobs was submitted at a planned time."""
        of_jobs = queries.among(_TRIGGER.job_row, job_rows)
        statement = sa.select(_TRIGGER.id).where(of_jobs, _TRIGGER.by_hand.is_(False)).limit(1)
        return self._connection.scalar(statement) is not None

    def last_planned_at(self, schedule_row: int) -> datetime.datetime | None:
        """Return the latest planned time that has a trigger, apart from those by hand."""
        latest = sa.select(sa.func.max(_TRIGGER.planned_at))
        planned = _TRIGGER.schedule_id == schedule_row, _TRIGGER.by_hand.is_(False)
        at: datetime.datetime | None = self._connection.scalar(latest.where(*planned))
        return at

    def change_trigger(self, trigger: records.Trigger, **fields: object) -> bool:
        """Change fields of a trigger; return False if its state changed or it has a verdict."""
        is_same = _TRIGGER.id == trigger.row, _TRIGGER.state == trigger.state, _HAS_NO_VERDICT
        values = {_COLUMNS.get(name, name): value for name, value in fields.items()}
        if "verdict_detail" in values:
            detail = values["verdict_detail"]
            values["verdict_detail"] = json.dumps(detail, default=str, ensure_ascii=False)
        return self._changed(sa.update(FIRINGS).where(*is_same).values(values)) == 1

    def _triggers(
        self, *conditions: sa.ColumnElement[bool], limit: int | None = None
    ) -> list[records.Trigger]:
        latest_first = _TRIGGER.planned_at.desc(), _TRIGGER.id.desc()
        statement = _SELECT_TRIGGERS.where(*conditions).order_by(*latest_first).limit(limit)
        return [_trigger(row) for row in self._rows(statement)]


def _payload_columns(payload: records.Payload) -> dict[str, object]:
    return {
        # JSON lacks the dates and times of TOML, but no key of a spec takes one.
        "spec": json.dumps(payload.spec, default=str, ensure_ascii=False),
        "environment": json.dumps(dict(payload.environment)),
        "argv": json.dumps(list(payload.argv)),
    }


def _trigger(row: sa.Row[Any]) -> records.Trigger:
    values = dict(zip(_TRIGGER_FIELDS, row, strict=False))
    values["verdict_detail"] = json.loads(row.verdict_detail or "{}")
    return records.Trigger(**values)
