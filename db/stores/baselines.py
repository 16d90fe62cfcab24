"""Baselines: measurements that were saved under a name."""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from db.stores import base
from db.tables.sweeps import BASELINES
from orchestrator.reports import records

_BASELINE = BASELINES.c


class BaselineStore(base.Store):
    def add(
        self, name: str, source: str, runs: int, measurements: str, created_at: datetime.datetime
    ) -> None:
        """Store a baseline, its measurements as JSON; older baselines with its name stay."""
        values = {"name": name, "created_at": created_at, "source": source, "runs": runs}
        self._insert(BASELINES, {**values, "measurements": measurements})

    def newest(self, *, name: str | None = None) -> list[records.Baseline]:
        statement = base.select(BASELINES, records.Baseline).order_by(_BASELINE.id.desc())
        if name is not None:
            statement = statement.where(_BASELINE.name == name)
        return self._records(records.Baseline, statement)

    def measurements(self, name: str) -> str | None:
        """Return the measurements of the newest baseline with this name, as JSON."""
        statement = sa.select(_BASELINE.measurements).where(_BASELINE.name == name)
        return self._connection.scalar(statement.order_by(_BASELINE.id.desc()).limit(1))
