"""Metric sets: what similar lines have in common, stored once (names, units, source, rank, ...).

A set has METRIC_PLACES names. A line of a set stores the values in the places of their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy import orm

from db import dialects, models
from db.stores import log_cursors
from orchestrator import metrics

PLACES = models.METRIC_PLACES
_SETS = models.Base.metadata.tables["metric_sets"]
_SET = _SETS.c
_COMMON = ("job_row", "log_id", "attempt", "source", "rank", "world_size")
_NAMES = tuple(f"{part}{place}" for place in range(PLACES) for part in ("name", "unit"))
_ADD = sa.insert(_SETS).returning(_SET.id)
# Columns and no ORM objects: 1,024 ranks with 100 names have 100,000 sets.
_SELECT = sa.select(_SET.id, *(_SET[name] for name in (*_COMMON, *_NAMES))).order_by(_SET.id)
#: a MetricSet less its ID and job
_Key: TypeAlias = tuple[int | None, int, str, int | None, int | None, tuple[tuple[str, str], ...]]


class MetricSet(NamedTuple):
    """What similar lines have in common."""

    id: int
    job_row: int
    log_id: int | None
    attempt: int
    source: str
    rank: int | None
    world_size: int | None
    #: name and unit of each metric, in their places
    names: tuple[tuple[str, str], ...]


class JobSets:
    """The set IDs of a job. A missing set is added."""

    def __init__(self, db: orm.Session, job_row: int) -> None:
        self._db, self._row = db, job_row
        self._ids: dict[_Key, int] | None = None
        #: by path
        self._log_ids: dict[str, int | None] = {"": None}

    def ids_of(self, line: metrics.ParsedLine) -> list[int]:
        """Return the sets of a line; a line with more than PLACES metrics has several."""
        if self._ids is None:
            self._ids = {one[2:]: one.id for one in of_jobs(self._db, [self._row])}
        if line.path not in self._log_ids:
            cursors = log_cursors.LogCursorStore(self._db)
            self._log_ids[line.path] = cursors.id_of(self._row, line.path)
        common = (self._log_ids[line.path], line.attempt, line.source, line.rank, line.world_size)
        ids = []
        for start in range(0, len(line.names), PLACES):
            key = (*common, line.names[start : start + PLACES])
            if key not in self._ids:
                self._ids[key] = self._add(key)
            ids.append(self._ids[key])
        return ids

    def _add(self, key: _Key) -> int:
        *common, names = key
        parts: list[str | None] = [part for name in names for part in name]
        parts += [None] * (len(_NAMES) - len(parts))
        columns = zip((*_COMMON, *_NAMES), (self._row, *common, *parts), strict=True)
        return int(self._db.connection().execute(_ADD, dict(columns)).scalar_one())


def of_jobs(db: orm.Session, job_rows: Iterable[int]) -> list[MetricSet]:
    """Return the sets of these jobs."""
    return _sets(db, _SET.job_row.in_(dialects.each(list(job_rows))))


def with_ids(db: orm.Session, ids: Iterable[int]) -> list[MetricSet]:
    """Return these sets."""
    return _sets(db, _SET.id.in_(dialects.each(list(ids))))


def of_file(db: orm.Session, job_row: int, path: str) -> dict[int, MetricSet]:
    """Return the sets of a file of a job by their IDs."""
    log_ids = sa.select(models.LogCursor.id).where(
        models.LogCursor.job_row == job_row, models.LogCursor.path == path
    )
    found = _sets(db, (_SET.job_row == job_row) & _SET.log_id.in_(log_ids))
    return {metric_set.id: metric_set for metric_set in found}


def delete(db: orm.Session, ids: Iterable[int]) -> None:
    """Delete these sets, and their lines with them (foreign key)."""
    db.execute(sa.delete(_SETS).where(_SET.id.in_(dialects.each(list(ids)))))


def _sets(db: orm.Session, condition: sa.ColumnElement[bool]) -> list[MetricSet]:
    sets = []
    for row in db.connection().execute(_SELECT.where(condition)):
        names = row[1 + len(_COMMON) :]
        pairs = zip(names[::2], names[1::2], strict=True)
        named = tuple([(name, unit) for name, unit in pairs if name is not None])
        sets.append(MetricSet._make((*row[: 1 + len(_COMMON)], named)))
    return sets
