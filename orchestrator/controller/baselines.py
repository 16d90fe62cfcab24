"""Baselines: what jobs showed, kept under a name for later ones to be held against."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

from sqlalchemy import orm

from db import baselines as queries
from db import models
from orchestrator import errors, reports
from orchestrator.controller import context as contexts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """A baseline, less its numbers."""

    #: our own number
    row: int
    name: str
    created_at: datetime.datetime
    #: the jobs, the sweep or the file that it was taken from
    source: str
    runs: int


class BaselineStore:
    """The baselines within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def add(self, name: str, source: str, numbers: reports.Figures, at: datetime.datetime) -> None:
        """Store a baseline; older ones of its name stay."""
        row = models.Baseline(
            name=name,
            created_at=at,
            source=source,
            runs=len(numbers.measurements),
            measurements=_text(numbers),
        )
        queries.add(self._db, row)

    def newest(self, *, name: str | None = None, limit: int | None = None) -> list[Baseline]:
        """Return baselines, newest first."""
        return [
            Baseline(
                row=row.id,
                name=row.name,
                created_at=row.created_at,
                source=row.source,
                runs=row.runs,
            )
            for row in queries.newest(self._db, name=name, limit=limit)
        ]

    def numbers(self, name: str) -> reports.Figures | None:
        """Return the numbers of the newest baseline of this name."""
        found = queries.newest(self._db, name=name, limit=1)
        return figures_of(found[0].measurements) if found else None


def find(context: contexts.Context, name: str) -> reports.Figures:
    """Return the numbers of the newest baseline of this name; NotFoundError."""
    with context.store.reading() as work:
        found = work.baselines.numbers(name)
    if found is None:
        raise unknown(name)
    return found


def unknown(name: str) -> errors.NotFoundError:
    """Return the error for a name that no baseline has."""
    return errors.NotFoundError(
        f"no baseline {name!r} here; `orchestrator baseline show` lists what is known"
    )


def as_record(one: reports.Measurement) -> dict[str, Any]:
    """Return a measurement as JSON holds it."""
    return dataclasses.asdict(one)


def _text(numbers: reports.Figures) -> str:
    measurements = [as_record(one) for one in numbers.measurements]
    return json.dumps({"unit": numbers.unit, "measurements": measurements}, ensure_ascii=False)


def figures_of(text: str) -> reports.Figures:
    """Return the numbers of a baseline from its JSON."""
    found = json.loads(text)
    return reports.Figures(
        unit=found["unit"],
        measurements=tuple(_measurement(one) for one in found["measurements"]),
    )


_FIELDS = frozenset(field.name for field in dataclasses.fields(reports.Measurement))


def _measurement(read: dict[str, Any]) -> reports.Measurement:
    # What an older version kept and this one does not know is left out.
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in read.items()
        if name in _FIELDS
    }
    return reports.Measurement(**values)
