"""Schedules and their firings. None of these commits."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import queries
from db.service_tables import Firing, Schedule


def add(session: orm.Session, schedule: Schedule) -> None:
    session.add(schedule)
    session.flush()


def schedules(
    session: orm.Session, *, name: str | None = None, states: Collection[str]
) -> Sequence[Schedule]:
    """Return the schedules in these states, oldest first, less their long texts."""
    statement = sa.select(Schedule).where(Schedule.state.in_(states)).order_by(Schedule.id)
    if name is not None:
        statement = statement.where(Schedule.name == name)
    return session.scalars(statement).all()


def schedule(session: orm.Session, schedule_id: int) -> Schedule | None:
    return session.get(Schedule, schedule_id)


def change(
    session: orm.Session, schedule_id: int, changes: Mapping[str, Any], version: int
) -> bool:
    """Change a schedule; false where it was changed since `version`."""
    statement = sa.update(Schedule).where(Schedule.id == schedule_id, Schedule.version == version)
    found = session.execute(statement.values(**changes, version=version + 1))
    return queries.row_count(found) == 1


def add_firings(session: orm.Session, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        session.execute(sa.insert(Firing), [dict(row) for row in rows])


def add_firing(session: orm.Session, row: Mapping[str, Any]) -> Firing:
    firing = Firing(**row)
    session.add(firing)
    session.flush()
    return firing


def firings(
    session: orm.Session,
    *,
    schedule_id: int | None = None,
    states: Collection[str] | None = None,
    unjudged: bool = False,
    judged_unlike: Collection[str] | None = None,
    decided_since: datetime.datetime | None = None,
    planned_since: datetime.datetime | None = None,
    planned_before: datetime.datetime | None = None,
    limit: int | None = None,
) -> Sequence[Firing]:
    """Return firings, those planned last first.

    `unjudged`: those without a verdict alone; `judged_unlike`: those with another one than these.
    """
    statement = sa.select(Firing).order_by(Firing.planned_at.desc(), Firing.id.desc())
    if schedule_id is not None:
        statement = statement.where(Firing.schedule_id == schedule_id)
    if states is not None:
        statement = statement.where(Firing.state.in_(states))
    if unjudged:
        statement = statement.where(Firing.verdict_at.is_(None))
    if judged_unlike is not None:
        statement = statement.where(Firing.verdict.not_in(judged_unlike))
    if decided_since is not None:
        statement = statement.where(Firing.decided_at >= decided_since)
    if planned_since is not None:
        statement = statement.where(Firing.planned_at >= planned_since)
    if planned_before is not None:
        statement = statement.where(Firing.planned_at < planned_before)
    return session.scalars(statement.limit(limit)).all()


def newest_planned(session: orm.Session, schedule_id: int) -> datetime.datetime | None:
    mine = Firing.schedule_id == schedule_id, Firing.by_hand.is_(False)
    return session.scalar(sa.select(sa.func.max(Firing.planned_at)).where(*mine))


def firing(session: orm.Session, firing_id: int) -> Firing | None:
    return session.get(Firing, firing_id)


def change_firing(
    session: orm.Session, firing_id: int, changes: Mapping[str, Any], *, state: str
) -> bool:
    """Change a firing that is in this state and has no verdict; false where there is none."""
    statement = sa.update(Firing).where(
        Firing.id == firing_id, Firing.state == state, Firing.verdict_at.is_(None)
    )
    return queries.row_count(session.execute(statement.values(**changes))) == 1
