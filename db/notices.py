"""Notices, their way to the receivers, and what there is to be told. None of these commits."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import models, queries, service_tables

_NOTICE = service_tables.Notice
_DELIVERY = service_tables.Delivery


def newest_event(session: orm.Session) -> int:
    """Return the number of the newest event of a job; 0: there is none."""
    return session.scalar(sa.select(sa.func.max(models.JobEvent.id))) or 0


def events_after(session: orm.Session, event: int, limit: int) -> list[tuple[Any, ...]]:
    """Return id, job_row, at, kind, state, source, detail of the next events, oldest first."""
    one = models.JobEvent
    columns = (one.id, one.job_row, one.at, one.kind, one.state, one.source, one.detail)
    statement = sa.select(*columns).where(one.id > event).order_by(one.id).limit(limit)
    return [tuple(row) for row in session.execute(statement)]


def causes(session: orm.Session, rows: Collection[int]) -> dict[int, tuple[int, str]]:
    """Return the newest cause that was told of each of these jobs, by row: attempt and text."""
    event = models.JobEvent
    statement = (
        sa.select(event.job_row, event.attempt, event.detail)
        .where(queries.among(event.job_row, rows), event.kind == "cause")
        .order_by(event.id)
    )
    return {row: (attempt, detail) for row, attempt, detail in session.execute(statement)}


def sweeps_of(session: orm.Session, rows: Collection[int]) -> dict[int, int]:
    """Return the sweep of each of these jobs that is a point's newest, by row."""
    point = models.SweepPoint
    statement = sa.select(point.job_row, point.sweep_id).where(queries.among(point.job_row, rows))
    return {row: sweep for row, sweep in session.execute(statement) if row is not None}


def recoveries(session: orm.Session, rows: Collection[int]) -> list[tuple[Any, ...]]:
    """Return job_row, attempt, action, state of what was decided about these jobs."""
    one = service_tables.Recovery
    columns = (one.job_row, one.attempt, one.action, one.state)
    statement = sa.select(*columns).where(queries.among(one.job_row, rows))
    return [tuple(row) for row in session.execute(statement)]


def firings(session: orm.Session, since: datetime.datetime, limit: int) -> list[tuple[Any, ...]]:
    """Return the newest firings that were decided or judged since, each with its schedule's name.

    As (Firing, name).
    """
    firing, schedule = service_tables.Firing, service_tables.Schedule
    newest = sa.select(firing.id).order_by(firing.id.desc()).limit(limit)
    statement = (
        sa.select(firing, schedule.name)
        .join(schedule, schedule.id == firing.schedule_id)
        .where(firing.id.in_(newest))
        .where(sa.or_(firing.decided_at >= since, firing.verdict_at >= since))
        .order_by(firing.id)
    )
    return [tuple(row) for row in session.execute(statement)]


def planned(session: orm.Session, job_rows: Collection[int]) -> bool:
    """Tell whether one of these jobs is of a planned time of a schedule."""
    firing = service_tables.Firing
    statement = sa.select(firing.id).where(
        queries.among(firing.job_row, job_rows), firing.by_hand.is_(False)
    )
    return session.scalar(statement.limit(1)) is not None


def known(session: orm.Session, keys: Collection[str]) -> set[str]:
    """Return those of the keys that a notice has."""
    return set(session.scalars(sa.select(_NOTICE.key).where(queries.among(_NOTICE.key, keys))))


def add(
    session: orm.Session,
    columns: Mapping[str, Any],
    channels: Sequence[str],
    at: datetime.datetime,
) -> None:
    """Store a notice, and its way to each of the channels."""
    notice = _NOTICE(**columns, created_at=at)
    session.add(notice)
    session.flush()
    for channel in channels:
        session.add(
            _DELIVERY(notice_id=notice.id, channel=channel, state="waiting", tries=0, next_at=at)
        )
    session.flush()


def due(
    session: orm.Session, channel: str, state: str, now: datetime.datetime, limit: int
) -> list[tuple[Any, ...]]:
    """Return (Notice, tries) of what is to be sent by this channel now, oldest first."""
    statement = (
        sa.select(_NOTICE, _DELIVERY.tries)
        .join(_DELIVERY, _DELIVERY.notice_id == _NOTICE.id)
        .where(_DELIVERY.channel == channel, _DELIVERY.state == state, _DELIVERY.next_at <= now)
        .order_by(_NOTICE.id)
        .limit(limit)
    )
    return [tuple(row) for row in session.execute(statement)]


def waits(session: orm.Session) -> set[str]:
    """Return the channels by which something is to be sent."""
    waiting = _DELIVERY.state.in_(("waiting", "sending"))
    return set(session.scalars(sa.select(_DELIVERY.channel).where(waiting).distinct()))


def claim(
    session: orm.Session,
    channel: str,
    tries: Mapping[int, int],
    until: datetime.datetime,
) -> bool:
    """Take the right to send these notices, each with its tries so far.

    False where another process was faster: then nothing may be committed.
    """
    for notice, count in tries.items():
        statement = (
            sa.update(_DELIVERY)
            .where(
                _DELIVERY.notice_id == notice,
                _DELIVERY.channel == channel,
                _DELIVERY.tries == count,
                _DELIVERY.state.in_(("waiting", "sending")),
            )
            .values(state="sending", tries=count + 1, next_at=until)
        )
        if queries.row_count(session.execute(statement)) != 1:
            return False
    return True


def change(
    session: orm.Session, channel: str, notices: Collection[int], values: Mapping[str, Any]
) -> None:
    """Store what became of these notices."""
    statement = sa.update(_DELIVERY).where(
        _DELIVERY.channel == channel, queries.among(_DELIVERY.notice_id, notices)
    )
    session.execute(statement.values(**values))


def drop_channel(session: orm.Session, channel: str, error: str) -> int:
    """Give up what was to be sent by this channel; returns how many."""
    statement = sa.update(_DELIVERY).where(
        _DELIVERY.channel == channel, _DELIVERY.state.in_(("waiting", "sending"))
    )
    return queries.row_count(session.execute(statement.values(state="failed", error=error)))


def again(session: orm.Session, channel: str | None, now: datetime.datetime) -> int:
    """Let what waits or was given up be due now; returns how many."""
    statement = sa.update(_DELIVERY).where(_DELIVERY.state.in_(("waiting", "sending", "failed")))
    if channel is not None:
        statement = statement.where(_DELIVERY.channel == channel)
    # What may have been taken is sent as it was, the same in the same message.
    state = sa.case((_DELIVERY.state == "failed", "waiting"), else_=_DELIVERY.state)
    values = {"state": state, "next_at": now, "tries": _DELIVERY.tries}
    return queries.row_count(session.execute(statement.values(**values)))


def newest(session: orm.Session, limit: int, states: Collection[str]) -> list[tuple[Any, ...]]:
    """Return (Notice, Delivery or none), newest first; `states`: only deliveries in these."""
    statement = sa.select(_NOTICE, _DELIVERY).outerjoin(
        _DELIVERY, _DELIVERY.notice_id == _NOTICE.id
    )
    if states:
        statement = statement.where(_DELIVERY.state.in_(states))
    ordered = statement.order_by(_NOTICE.id.desc(), _DELIVERY.channel).limit(limit)
    return [tuple(row) for row in session.execute(ordered)]


def counts(session: orm.Session) -> list[tuple[str, str, int]]:
    """Return how many deliveries are in which state, as (channel, state, count)."""
    columns = (_DELIVERY.channel, _DELIVERY.state)
    statement = sa.select(*columns, sa.func.count()).group_by(*columns).order_by(*columns)
    return [(row[0], row[1], row[2]) for row in session.execute(statement)]
