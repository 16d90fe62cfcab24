"""The numbers of a file, taken out and put in anew. None of these commits."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import metrics, models

_SETS = models.MetricSet.__table__.c
_LINES = models.MetricLine.__table__.c
#: Rows that are taken from the database at a time.
_PART = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """What is stored of one file of a job."""

    #: numbers, not lines
    count: int
    #: its lines were numbered from 1 again: it was cut, or another file took its place
    began_anew: bool


def held(session: orm.Session, row: int, path: str) -> Held:
    """Return what is stored of a file."""
    places = {}
    for one in session.scalars(_sets_of(row, path)):
        names = (getattr(one, f"name{place}") for place in range(models.METRIC_PLACES))
        places[one.id] = sum(name is not None for name in names)
    chosen = sa.select(_LINES.set_id, _LINES.line).where(_LINES.set_id.in_(places))
    count, began_anew, newest = 0, False, 0
    found = session.connection().execute(chosen.order_by(_LINES.id))
    for number, line in itertools.chain.from_iterable(found.partitions(_PART)):
        count += places[number]
        began_anew = began_anew or (line is not None and line < newest)
        newest = line or newest
    return Held(count=count, began_anew=began_anew)


def drop(session: orm.Session, row: int, path: str) -> None:
    """Take out what is stored of a file."""
    sets = sa.select(_sets_of(row, path).subquery().c.id)
    session.execute(sa.delete(models.MetricLine).where(_LINES.set_id.in_(sets)))
    session.execute(sa.delete(models.MetricSet).where(_SETS.id.in_(sets)))


def lines(session: orm.Session, row: int, path: str) -> Iterator[list[metrics.Numbers]]:
    """Yield what is stored of a file, as it was read, part by part."""
    sets = {one.id: one for one in session.scalars(_sets_of(row, path))}
    names = {
        number: tuple(
            (name, getattr(one, f"unit{place}"))
            for place in range(models.METRIC_PLACES)
            if (name := getattr(one, f"name{place}")) is not None
        )
        for number, one in sets.items()
    }
    columns = [_LINES.set_id, _LINES.step, _LINES.epoch, _LINES.line]
    values = [_LINES[f"value{place}"] for place in range(models.METRIC_PLACES)]
    time = sa.type_coerce(_LINES.time, models.METRIC_TIME)
    chosen = sa.select(*columns, time, *values).where(_LINES.set_id.in_(sets)).order_by(_LINES.id)
    for part in session.connection().execute(chosen).partitions(_PART):
        yield [
            metrics.Numbers(
                path=path,
                source=sets[number].source,
                attempt=sets[number].attempt,
                rank=sets[number].rank,
                world_size=sets[number].world_size,
                names=names[number],
                step=step,
                epoch=epoch,
                time=None if at is None else at.replace(tzinfo=datetime.UTC),
                line=line,
                values=tuple(told[: len(names[number])]),
            )
            for number, step, epoch, line, at, *told in part
        ]


def _sets_of(row: int, path: str) -> sa.Select[Any]:
    file = models.LogCursor
    return (
        sa.select(models.MetricSet)
        .join(file, file.id == models.MetricSet.log_id)
        .where(models.MetricSet.job_row == row, file.path == path)
    )
