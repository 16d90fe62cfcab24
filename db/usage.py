"""What jobs have used: their starts, and the figures of those that are over. None commits."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import models, queries


def started_attempts(
    session: orm.Session,
    rows: Collection[int],
    since: datetime.datetime | None,
    until: datetime.datetime | None,
) -> list[sa.Row[Any]]:
    """Return the attempts of these jobs that began before `until` and had not ended by `since`."""
    attempt = models.Attempt.__table__
    wanted: list[sa.ColumnElement[bool]] = [attempt.c.started_at.is_not(None)]
    if since is not None:
        wanted.append(sa.or_(attempt.c.ended_at.is_(None), attempt.c.ended_at >= since))
    if until is not None:
        wanted.append(attempt.c.started_at < until)
    found: list[sa.Row[Any]] = []
    for portion in queries.portions(rows):
        statement = sa.select(attempt).where(attempt.c.job_row.in_(portion), *wanted)
        found += session.execute(statement.order_by(attempt.c.job_row, attempt.c.number)).all()
    return found


def used_figures(session: orm.Session, row: int, attempt: int) -> str | None:
    used = models.UsedFigures.__table__.c
    mine = (used.job_row == row, used.attempt == attempt)
    return session.scalar(sa.select(used.figures).where(*mine))


def put_used_figures(session: orm.Session, row: int, attempt: int, figures: str) -> None:
    session.merge(models.UsedFigures(job_row=row, attempt=attempt, figures=figures))
    session.flush()
