"""Numbers read back: which of them jobs have, and the rows of those that are wanted.

A job may have a million numbers. So their places are found first, in an index, and then what
stands there, part by part.
"""

from __future__ import annotations

import array
import dataclasses
import datetime
import fnmatch
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy import orm

from db import dialects, models

#: As `metrics.id`: METRIC_PLACES * metric_lines.id + place; 8 bytes each.
Ids: TypeAlias = "array.array[int]"

_PLACES = models.METRIC_PLACES
#: Rows that are taken from the database at a time.
_PART = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricQuery:
    """Which metrics; all that is given must hold. Ends of ranges belong to them."""

    #: our row numbers of the jobs
    rows: Collection[int]
    #: `val_*` and the like are those that fit
    names: Collection[str] = ()
    attempt: int | None = None
    rank: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    first_epoch: int | None = None
    last_epoch: int | None = None
    #: of those that tell their time
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    #: "log:PATTERN", "jsonl" or "log" (all patterns); none: all
    source: str | None = None
    #: of one job, name and attempt the metrics.jsonl wins over the log
    prefer_jsonl: bool = False
    #: only rows behind this one
    after: int | None = None
    #: only the newest so many of each job, name and rank
    last: int | None = None
    #: only each so-many-th of each job, name and rank, from the first
    every: int | None = None
    #: only so many of each job, name and rank, spread evenly, with the first and the last
    points: int | None = None


class Series(NamedTuple):
    """The numbers in one place of the lines of one set."""

    set_id: int
    place: int
    job_row: int
    name: str
    unit: str
    source: str
    attempt: int
    rank: int | None
    world_size: int | None
    log_id: int | None


class MetricRow(NamedTuple):
    """One number, as it is stored."""

    id: int
    job_row: int
    name: str
    #: none: NaN
    value: float | None
    unit: str
    step: int | None
    epoch: int | None
    rank: int | None
    world_size: int | None
    #: in UTC, without a zone
    time: datetime.datetime | None
    attempt: int
    source: str
    log_id: int | None
    line: int | None


def series(session: orm.Session, rows: Iterable[int]) -> list[Series]:
    """Return what numbers there are of these jobs."""
    sets = models.MetricSet.__table__.c
    return _of_sets(session, sets.job_row, rows)


def _of_sets(
    session: orm.Session, column: sa.ColumnElement[Any], values: Iterable[int]
) -> list[Series]:
    sets = models.MetricSet.__table__
    columns = [sets.c[name] for name in ("id", *_OF_A_SET)]
    names = [sets.c[f"{what}{place}"] for place in range(_PLACES) for what in ("name", "unit")]
    statement = (
        sa.select(*columns, *names)
        .where(column.in_(dialects.each(list(values))))
        .order_by(sets.c.id)
    )
    found = []
    for row in session.connection().execute(statement):
        number, job_row, source, attempt, rank, world_size, log_id, *told = row
        about = (source, attempt, rank, world_size, log_id)
        for place, (name, unit) in enumerate(zip(told[::2], told[1::2], strict=True)):
            if name is not None:
                found.append(Series(number, place, job_row, name, unit, *about))
    return found


_OF_A_SET = ("job_row", "source", "attempt", "rank", "world_size", "log_id")


def chosen(found: Sequence[Series], query: MetricQuery) -> list[Series]:
    """Return those series that the query asks for."""
    told = {(one.job_row, one.name, one.attempt) for one in found if one.source == "jsonl"}
    wanted = []
    for one in found:
        if query.names and not any(fnmatch.fnmatchcase(one.name, name) for name in query.names):
            continue
        if query.attempt is not None and one.attempt != query.attempt:
            continue
        if query.rank is not None and one.rank != query.rank:
            continue
        if query.source == "log":
            if one.source == "jsonl":
                continue
        elif query.source is not None and one.source != query.source:
            continue
        hidden = query.prefer_jsonl and one.source != "jsonl"
        if hidden and (one.job_row, one.name, one.attempt) in told:
            continue
        wanted.append(one)
    return wanted


def ids(session: orm.Session, query: MetricQuery) -> dict[int, Ids]:
    """Return the numbers that are wanted, by job, in the order of reading."""
    wanted = chosen(series(session, query.rows), query)
    thinned = query.last is not None or query.every is not None or query.points is not None
    found = _thinned(session, wanted, query) if thinned else _all(session, wanted, query)
    return {row: found[row] for row in query.rows if row in found}


def _all(session: orm.Session, wanted: Sequence[Series], query: MetricQuery) -> dict[int, Ids]:
    places: dict[int, list[int]] = {}
    owners = {}
    for one in wanted:
        places.setdefault(one.set_id, []).append(one.place)
        owners[one.set_id] = one.job_row
    found: dict[int, list[int]] = {}
    for line, number in _lines(session, list(places), query):
        first = line * _PLACES
        found.setdefault(owners[number], []).extend(first + place for place in places[number])
    return {row: array.array("q", sorted(mine)) for row, mine in found.items()}


def _thinned(session: orm.Session, wanted: Sequence[Series], query: MetricQuery) -> dict[int, Ids]:
    """Return so many of each job, name and rank."""
    sets = list(dict.fromkeys(one.set_id for one in wanted))
    lines: dict[int, list[int]] = {number: [] for number in sets}
    if query.last is not None:
        for number in sets:
            lines[number] = [line for line, _ in _lines(session, [number], query, query.last)]
    else:
        for line, number in _lines(session, sets, query):
            lines[number].append(line)
    groups: dict[tuple[int, str, int | None], list[int]] = {}
    for one in wanted:
        mine = groups.setdefault((one.job_row, one.name, one.rank), [])
        mine += [line * _PLACES + one.place for line in lines[one.set_id]]
    found: dict[int, list[int]] = {}
    for (row, _, _), numbers in groups.items():
        numbers.sort()
        numbers = numbers if query.last is None else numbers[-query.last :]
        numbers = numbers if query.every is None else numbers[:: query.every]
        numbers = numbers if query.points is None else spread(numbers, query.points)
        found.setdefault(row, []).extend(numbers)
    return {row: array.array("q", sorted(mine)) for row, mine in found.items() if mine}


def spread(items: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the items, evenly spread, with the first and the last."""
    count = len(items)
    if count <= most:
        return list(items)
    if most == 1:
        return [items[-1]]
    return [items[place * (count - 1) // (most - 1)] for place in range(most)]


def _lines(
    session: orm.Session, sets: Sequence[int], query: MetricQuery, last: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield the lines of these sets, and their sets; with `last` the newest so many, backwards."""
    lines = models.MetricLine.__table__.c
    statement = sa.select(lines.id, lines.set_id).where(lines.set_id.in_(dialects.each(sets)))
    for column, is_first, end in (
        (lines.step, True, query.first_step),
        (lines.step, False, query.last_step),
        (lines.epoch, True, query.first_epoch),
        (lines.epoch, False, query.last_epoch),
        (lines.time, True, query.since),
        (lines.time, False, query.until),
        # The numbers of a line are committed together.
        (lines.id, True, None if query.after is None else query.after // _PLACES + 1),
    ):
        if end is not None:
            statement = statement.where(column >= end if is_first else column <= end)
    if last is not None:
        statement = statement.order_by(lines.id.desc()).limit(last)
    for part in session.connection().execute(statement).partitions(_PART):
        yield from part


def rows(session: orm.Session, wanted: Ids | Sequence[int]) -> list[MetricRow]:
    """Return these numbers in the order of reading, less those that are not there any more."""
    places: dict[int, list[int]] = {}
    for number in sorted(wanted):
        places.setdefault(number // _PLACES, []).append(number % _PLACES)
    lines = models.MetricLine.__table__.c
    # Bare types: a function of ours called for each time would take as long as all the rest.
    columns: list[sa.ColumnElement[Any]] = [lines.id, lines.set_id, lines.step, lines.epoch]
    columns += [sa.type_coerce(lines.time, models.METRIC_TIME), lines.line]
    columns += [lines[f"value{place}"] for place in range(_PLACES)]
    statement = sa.select(*columns).where(lines.id.in_(dialects.each(places))).order_by(lines.id)
    found = session.connection().execute(statement).all()
    sets = models.MetricSet.__table__.c
    about: Mapping[tuple[int, int], Series] = {
        (one.set_id, one.place): one
        for one in _of_sets(session, sets.id, {row[1] for row in found})
    }
    made = []
    for row in found:
        line, number, step, epoch, time, place_in_file = row[:6]
        for place in places[line]:
            one = about[number, place]
            made.append(
                MetricRow(
                    line * _PLACES + place,
                    one.job_row,
                    one.name,
                    row[6 + place],
                    one.unit,
                    step,
                    epoch,
                    one.rank,
                    one.world_size,
                    time,
                    one.attempt,
                    one.source,
                    one.log_id,
                    place_in_file,
                )
            )
    return made
