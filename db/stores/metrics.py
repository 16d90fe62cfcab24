"""Metrics: parsed lines are added, and metrics are read back by number, by job or by file.

A job may have a million metrics. A query therefore first finds their numbers in an index; the
metrics themselves are read afterwards, page by page.
"""

from __future__ import annotations

import array
import datetime
import fnmatch
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import orm

from db import dialects, models
from db.stores import log_cursors, metric_sets
from orchestrator import jobs, metrics

#: As `metrics.id`: PLACES * metric_lines.id + place; 8 bytes each.
Ids: TypeAlias = "array.array[int]"

_Selected: TypeAlias = Sequence[tuple[metric_sets.MetricSet, list[int]]]

_PLACES = metric_sets.PLACES
_LINE = models.Base.metadata.tables["metric_lines"].c
_VALUES = tuple(f"value{place}" for place in range(_PLACES))
_INSERTED = ("set_id", "step", "epoch", "time", "line", *_VALUES)
_PADDING = (None,) * _PLACES
# A bare time: calling a function of ours for each time would double the duration of a query.
_TIME = sa.type_coerce(_LINE.time, models.METRIC_TIME)
_SELECT = sa.select(
    *(_LINE.id, _LINE.set_id, _LINE.step, _LINE.epoch, _TIME, _LINE.line),
    *(_LINE[value] for value in _VALUES),
).order_by(_LINE.id)
#: Rows fetched from the database at a time.
_FETCH_ROWS = 10_000


class MetricStore:
    """The metrics of jobs within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def add(self, row: int, lines: Sequence[metrics.ParsedLine]) -> int:
        """Store lines of a job in their order; return the number of metrics.

        Lines that are stored already are not detected: whoever reads a file moves its cursor in the
        same transaction.
        """
        sets = metric_sets.JobSets(self._db, row)
        parameters: list[Any] = []
        count = 0
        # Similar lines share the object with their names, which lives as long as `lines`: comparing
        # its identity is enough.
        known: dict[tuple[object, ...], list[int]] = {}
        for parsed in lines:
            path, source, attempt, rank, world_size, names, step, epoch, time, line, values = parsed
            key = (id(names), path, source, attempt, rank, world_size)
            set_ids = known.get(key)
            if set_ids is None:
                set_ids = known[key] = sets.ids_of(parsed)
            stored_time = None if time is None else _stored_time(time)
            count += len(values)
            start = 0
            for set_id in set_ids:
                part = values[start : start + _PLACES]
                parameters += (set_id, step, epoch, stored_time, line, *part)
                parameters += _PADDING[len(part) :]
                start += _PLACES
        dialects.insert(self._db, "metric_lines", _INSERTED, parameters)
        return count

    def names(self, job_rows: Iterable[int]) -> list[str]:
        """Return the names of all metrics of these jobs, sorted."""
        sets = metric_sets.of_jobs(self._db, job_rows)
        return sorted({name for one in sets for name, _ in one.names})

    def by_job(self, query: metrics.MetricQuery) -> dict[int, list[jobs.Metric]]:
        """Return metrics by job, in the query's order of jobs and the order of reading."""
        ids = self.ids(query)
        paths = log_cursors.LogCursorStore(self._db).paths(ids) if ids else {}
        return {
            job_row: [_metric(row, paths.get(row.log_id or 0, "")) for row in self.rows(found)]
            for job_row, found in ids.items()
        }

    def ids(self, query: metrics.MetricQuery) -> dict[int, Ids]:
        """Return the numbers of metrics by job, in the query's order of jobs and of reading."""
        selected = _selected(metric_sets.of_jobs(self._db, query.job_rows), query)
        is_thinned = query.last is not None or query.every is not None or query.points is not None
        ids = (self._thinned_ids if is_thinned else self._all_ids)(selected, query)
        sorted_ids = {row: array.array("q", sorted(of_job)) for row, of_job in ids.items()}
        return {row: sorted_ids[row] for row in query.job_rows if sorted_ids.get(row)}

    def rows(self, ids: Sequence[int]) -> list[metrics.MetricRow]:
        """Return the metrics with these numbers that still exist, in the order of reading."""
        places: dict[int, list[int]] = {}
        for number in sorted(ids):
            places.setdefault(number // _PLACES, []).append(number % _PLACES)
        statement = _SELECT.where(_LINE.id.in_(dialects.each(places)))
        lines = self._db.connection().execute(statement).all()
        found = metric_sets.with_ids(self._db, {line[1] for line in lines})
        sets = {one.id: one for one in found}
        rows = []
        for line_id, set_id, step, epoch, time, line, *values in lines:
            _, job_row, log_id, attempt, source, rank, world_size, names = sets[set_id]
            for place in places[line_id]:
                name, unit = names[place]
                rows.append(
                    metrics.MetricRow(
                        line_id * _PLACES + place,
                        job_row,
                        name,
                        values[place],
                        unit,
                        step,
                        epoch,
                        rank,
                        world_size,
                        time,
                        attempt,
                        source,
                        log_id,
                        line,
                    )
                )
        return rows

    def of_file(self, row: int, path: str) -> Iterator[list[metrics.ParsedLine]]:
        """Yield the stored lines of a file as they were parsed, part by part."""
        sets = metric_sets.of_file(self._db, row, path)
        statement = _SELECT.where(_LINE.set_id.in_(dialects.each(sets)))
        for part in self._db.connection().execute(statement).partitions(_FETCH_ROWS):
            yield [
                metrics.ParsedLine(
                    path=path,
                    source=sets[set_id].source,
                    attempt=sets[set_id].attempt,
                    rank=sets[set_id].rank,
                    world_size=sets[set_id].world_size,
                    names=sets[set_id].names,
                    step=step,
                    epoch=epoch,
                    time=_in_utc(time),
                    line=line,
                    values=tuple(values[: len(sets[set_id].names)]),
                )
                for _, set_id, step, epoch, time, line, *values in part
            ]

    def file_summary(self, row: int, path: str) -> metrics.FileSummary:
        """Return how much is stored from a file."""
        sets = metric_sets.of_file(self._db, row, path)
        statement = sa.select(_LINE.set_id, _LINE.line).order_by(_LINE.id)
        statement = statement.where(_LINE.set_id.in_(dialects.each(sets)))
        count, previous, restarted = 0, 0, False
        for set_id, line in _fetched(self._db, statement):
            count += len(sets[set_id].names)
            restarted = restarted or (line is not None and line < previous)
            previous = line or previous
        return metrics.FileSummary(count=count, restarted=restarted)

    def delete_file(self, row: int, path: str) -> None:
        """Delete the metrics of a file."""
        metric_sets.delete(self._db, metric_sets.of_file(self._db, row, path))

    def _all_ids(self, selected: _Selected, query: metrics.MetricQuery) -> dict[int, list[int]]:
        by_id = {one.id: (one.job_row, places) for one, places in selected}
        ids: dict[int, list[int]] = {}
        for line_id, set_id in self._lines(list(by_id), query):
            job_row, places = by_id[set_id]
            ids.setdefault(job_row, []).extend([line_id * _PLACES + place for place in places])
        return ids

    def _thinned_ids(self, selected: _Selected, query: metrics.MetricQuery) -> dict[int, list[int]]:
        """Apply `last`, `every` and `points` to each job, name and rank."""
        lines: dict[int, list[int]] = {one.id: [] for one, _ in selected}
        if query.last is not None:
            for set_id, found in lines.items():
                found += [line_id for line_id, _ in self._lines([set_id], query, query.last)]
        else:
            for line_id, set_id in self._lines(list(lines), query):
                lines[set_id].append(line_id)
        series: dict[tuple[int, str, int | None], list[int]] = {}
        for one, places in selected:
            for place in places:
                numbers = series.setdefault((one.job_row, one.names[place][0], one.rank), [])
                numbers += [line_id * _PLACES + place for line_id in lines[one.id]]
        ids: dict[int, list[int]] = {}
        for (job_row, _, _), numbers in series.items():
            numbers.sort()
            numbers = numbers if query.last is None else numbers[-query.last :]
            numbers = numbers if query.every is None else numbers[:: query.every]
            numbers = numbers if query.points is None else _spread(numbers, query.points)
            ids.setdefault(job_row, []).extend(numbers)
        return ids

    def _lines(
        self, set_ids: Sequence[int], query: metrics.MetricQuery, last: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Yield IDs of lines and their sets; with `last` only that many, the newest first."""
        statement = sa.select(_LINE.id, _LINE.set_id).where(
            _LINE.set_id.in_(dialects.each(set_ids))
        )
        for column, least, most in (
            (_LINE.step, query.first_step, query.last_step),
            (_LINE.epoch, query.first_epoch, query.last_epoch),
            (_LINE.time, query.since, query.until),
            # The metrics of a line are committed together.
            (_LINE.id, None if query.after is None else query.after // _PLACES + 1, None),
        ):
            if least is not None:
                statement = statement.where(column >= least)
            if most is not None:
                statement = statement.where(column <= most)
        if last is not None:
            statement = statement.order_by(_LINE.id.desc()).limit(last)
        return _fetched(self._db, statement)


def _fetched(db: orm.Session, statement: sa.Select[Any]) -> Iterator[Any]:
    parts = db.connection().execute(statement).partitions(_FETCH_ROWS)
    return itertools.chain.from_iterable(parts)


def _selected(
    sets: Sequence[metric_sets.MetricSet], query: metrics.MetricQuery
) -> list[tuple[metric_sets.MetricSet, list[int]]]:
    """Return the sets that a query selects, each with the places of the metrics in it."""
    in_jsonl = {
        (one.job_row, name, one.attempt)
        for one in sets
        if one.source == "jsonl"
        for name, _ in one.names
    }
    selected = []
    for one in sets:
        if query.attempt not in (None, one.attempt) or query.rank not in (None, one.rank):
            continue
        is_log = one.source != "jsonl"
        if not (is_log if query.source == "log" else query.source in (None, one.source)):
            continue
        places = [
            place
            for place, (name, _) in enumerate(one.names)
            if not query.names or any(fnmatch.fnmatchcase(name, asked) for asked in query.names)
            if not (query.prefer_jsonl and is_log and (one.job_row, name, one.attempt) in in_jsonl)
        ]
        if places:
            selected.append((one, places))
    return selected


def _spread(items: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the items, evenly spaced, with the first and the last."""
    count = len(items)
    if count <= most:
        return list(items)
    if most == 1:
        return [items[-1]]
    return [items[place * (count - 1) // (most - 1)] for place in range(most)]


def _metric(row: metrics.MetricRow, path: str) -> jobs.Metric:
    return jobs.Metric(
        name=row.name,
        value=math.nan if row.value is None else row.value,
        unit=row.unit,
        step=row.step,
        epoch=row.epoch,
        rank=row.rank,
        world_size=row.world_size,
        time=_in_utc(row.time),
        attempt=row.attempt,
        source=row.source,
        path=path,
        line=row.line,
    )


def _in_utc(time: datetime.datetime | None) -> datetime.datetime | None:
    return None if time is None else time.replace(tzinfo=datetime.UTC)


def _stored_time(time: datetime.datetime) -> str:
    # As SQLAlchemy writes a DateTime into SQLite, and in UTC as in all sessions with PostgreSQL.
    # strftime("%Y") gives the year 999 three digits.
    naive = time.astimezone(datetime.UTC).replace(tzinfo=None)
    return naive.isoformat(sep=" ", timespec="microseconds")
