"""Baselines. None of these commits."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import orm

from db import models


def add(session: orm.Session, baseline: models.Baseline) -> None:
    session.add(baseline)
    session.flush()


def newest(
    session: orm.Session, *, name: str | None = None, limit: int | None = None
) -> list[models.Baseline]:
    """Return baselines, newest first, less their measurements."""
    statement = sa.select(models.Baseline).order_by(models.Baseline.id.desc()).limit(limit)
    if name is not None:
        statement = statement.where(models.Baseline.name == name)
    return [*session.scalars(statement)]
