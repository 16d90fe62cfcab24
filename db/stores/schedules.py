"""Schedules and their triggers."""

from __future__ import annotations

import datetime
from collections.abc import Collection

import sqlalchemy as sa

from db.stores import base
from db.tables.service import SCHEDULES, TRIGGERS
from orchestrator.schedules import records

_SCHEDULE, _TRIGGER = SCHEDULES.c, TRIGGERS.c
_SELECT_SCHEDULES = base.select(SCHEDULES, records.Schedule)
_SELECT_TRIGGERS = base.select(TRIGGERS, records.Trigger)
_HAS_NO_VERDICT = _TRIGGER.verdict_at.is_(None)


class ScheduleStore(base.Store):
    """The schedules within one transaction. Neither schedules nor triggers are ever deleted."""

    def add(self, payload: records.Payload, **fields: object) -> records.Schedule:
        """Store a schedule; `fields` are those of Schedule."""
        return self.get(self._insert(SCHEDULES, {"version": 0, **fields, **vars(payload)}))

    def change(
        self, schedule: records.Schedule, payload: records.Payload | None = None, **fields: object
    ) -> bool:
        """Change fields of a schedule, and its payload; return False if it changed meanwhile."""
        is_same = _SCHEDULE.id == schedule.row, _SCHEDULE.version == schedule.version
        fields |= {**(vars(payload) if payload else {}), "version": schedule.version + 1}
        return self._update(SCHEDULES, fields, *is_same) == 1

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
        return self._records(records.Schedule, statement)

    def get(self, row: int) -> records.Schedule:
        return self._records(records.Schedule, _SELECT_SCHEDULES.where(_SCHEDULE.id == row))[0]

    def payload(self, row: int) -> records.Payload:
        statement = base.select(SCHEDULES, records.Payload).where(_SCHEDULE.id == row)
        return self._records(records.Payload, statement)[0]

    def add_triggers(
        self, schedule: records.Schedule, decided: records.Decided, now: datetime.datetime
    ) -> bool:
        """Store a trigger for each planned time; return False if the schedule changed meanwhile."""
        if not self.change(schedule, decided_until=decided.until):
            return False
        shared = {"schedule_id": schedule.row, "by_hand": False, "decided_at": now}
        names = ("planned_at", "due_at", "state", "reason")
        self._insert_many(
            TRIGGERS,
            [
                {**shared, **{name: getattr(planned, name) for name in names}}
                for planned in decided.planned
            ],
        )
        return True

    def add_trigger_by_hand(
        self, schedule: records.Schedule, now: datetime.datetime
    ) -> records.Trigger:
        """Store a trigger that is due now; its planned time is the next free second."""
        at = now.replace(microsecond=0)
        of_schedule = _TRIGGER.schedule_id == schedule.row
        later = sa.select(_TRIGGER.planned_at).where(of_schedule, _TRIGGER.planned_at >= at)
        taken = {*self._scalars(later)}
        # Whole minutes belong to the cron expression.
        while at.second == 0 or at in taken:
            at += datetime.timedelta(seconds=1)
        fields = {"schedule_row": schedule.row, "by_hand": True, "state": "waiting"}
        times = {"planned_at": at, "due_at": now, "decided_at": now}
        return self.trigger(self._insert(TRIGGERS, {**fields, **times}))

    def trigger(self, row: int) -> records.Trigger:
        return self._triggers(_TRIGGER.id == row)[0]

    def triggers(self, schedule_row: int, *, limit: int | None = None) -> list[records.Trigger]:
        """Return the triggers of a schedule, latest planned time first."""
        return self._triggers(_TRIGGER.schedule_id == schedule_row, limit=limit)

    def triggers_between(
        self, schedule_row: int, begin: datetime.datetime, end: datetime.datetime, *, limit: int
    ) -> list[records.Trigger]:
        """Return the last triggers with these planned times, earliest first."""
        of_schedule = _TRIGGER.schedule_id == schedule_row
        between = _TRIGGER.planned_at >= begin, _TRIGGER.planned_at < end
        return self._triggers(of_schedule, *between, limit=limit)[::-1]

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
        trigger: records.Trigger | None,
        schedule: records.Schedule,
        *,
        except_verdicts: Collection[str],
        limit: int,
    ) -> list[records.Trigger]:
        """Return the latest triggers before this one whose results it is compared with.

        None: before the next trigger, which is not decided yet.
        """
        conditions = [
            _TRIGGER.schedule_id == schedule.row,
            _TRIGGER.state == "fired",
            _TRIGGER.verdict.not_in(except_verdicts),
            _TRIGGER.decided_at >= schedule.created_at,
        ]
        if trigger is not None:
            conditions.append(_TRIGGER.planned_at < trigger.planned_at)
        return self._triggers(*conditions, limit=limit)

    def recent_triggers(
        self, since: datetime.datetime, limit: int
    ) -> list[tuple[records.Trigger, str]]:
        """Return triggers decided or checked since a time, oldest first, with schedule names.

        Only the newest `limit` triggers are searched.
        """
        newest = sa.select(_TRIGGER.id).order_by(_TRIGGER.id.desc()).limit(limit)
        statement = (
            _SELECT_TRIGGERS.add_columns(_SCHEDULE.name)
            .join_from(TRIGGERS, SCHEDULES)
            .where(_TRIGGER.id.in_(newest))
            .where(sa.or_(_TRIGGER.decided_at >= since, _TRIGGER.verdict_at >= since))
            .order_by(_TRIGGER.id)
        )
        triggers = []
        for row in self._rows(statement):
            fields = row._asdict()
            name = fields.pop("name")
            triggers.append((records.Trigger(**fields), name))
        return triggers

    def of_sweep(self, sweep_row: int) -> int | None:
        """Return the row of the schedule that submitted a sweep."""
        statement = sa.select(_TRIGGER.schedule_id).where(_TRIGGER.sweep_id == sweep_row)
        return self._connection.scalar(statement.limit(1))

    def submitted_any(self, job_rows: Collection[int]) -> bool:
        """Return whether one of these jobs was submitted at a planned time."""
        of_jobs = base.among(_TRIGGER.job_row, job_rows)
        statement = sa.select(_TRIGGER.id).where(of_jobs, _TRIGGER.by_hand.is_(False)).limit(1)
        return self._connection.scalar(statement) is not None

    def last_planned_at(self, schedule_row: int) -> datetime.datetime | None:
        """Return the latest planned time that has a trigger, apart from those by hand."""
        latest = sa.select(sa.func.max(_TRIGGER.planned_at))
        planned = _TRIGGER.schedule_id == schedule_row, _TRIGGER.by_hand.is_(False)
        return self._scalar(datetime.datetime, latest.where(*planned))

    def change_trigger(self, trigger: records.Trigger, **fields: object) -> bool:
        """Change fields of a trigger; return False if its state changed or it has a verdict."""
        is_same = _TRIGGER.id == trigger.row, _TRIGGER.state == trigger.state, _HAS_NO_VERDICT
        return self._update(TRIGGERS, fields, *is_same) == 1

    def _triggers(
        self, *conditions: sa.ColumnElement[bool], limit: int | None = None
    ) -> list[records.Trigger]:
        latest_first = _TRIGGER.planned_at.desc(), _TRIGGER.id.desc()
        statement = _SELECT_TRIGGERS.where(*conditions).order_by(*latest_first).limit(limit)
        return self._records(records.Trigger, statement)
