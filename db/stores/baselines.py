"""Baselines: measurements that were saved under a name."""

from __future__ import annotations

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from db import models
from orchestrator.reports import records

_BASELINE = models.Baseline


class BaselineStore:
    """Baselines within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def add(
        self, name: str, source: str, runs: int, measurements: str, created_at: datetime.datetime
    ) -> None:
        """Store a baseline, its measurements as JSON; older baselines with its name stay."""
        self._db.add(
            _BASELINE(
                name=name,
                created_at=created_at,
                source=source,
                runs=runs,
                measurements=measurements,
            )
        )
        self._db.flush()

    def newest(self, *, name: str | None = None) -> list[records.Baseline]:
        """Return baselines, newest first."""
        statement = sa.select(_BASELINE).order_by(_BASELINE.id.desc())
        if name is not None:
            statement = statement.where(_BASELINE.name == name)
        return [
            records.Baseline(
                row=row.id,
                name=row.name,
                created_at=row.created_at,
                source=row.source,
                runs=row.runs,
            )
            for row in self._db.scalars(statement)
        ]

    def measurements(self, name: str) -> str | None:
        """Return the measurements of the newest baseline with this name, as JSON."""
        statement = sa.select(_BASELINE.measurements).where(_BASELINE.name == name)
        return self._db.scalar(statement.order_by(_BASELINE.id.desc()).limit(1))
