"""Metrics: parsed lines are added, and metrics are read back by number, by job or by file.

What similar lines have in common (names, units, source, rank, ...) is stored once, as a metric set.
A set has METRIC_PLACES names; a line of the set stores the values in the places of their names.

A job may have a million metrics. A query therefore first finds their numbers in an index; the
metrics themselves are read afterwards, page by page.
"""

from __future__ import annotations

import array
import datetime
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from db.stores import base
from db.stores.metrics import log_cursors, metric_sets
from db.tables.metrics import LOG_CURSORS, METRIC_LINES, METRIC_PLACES, METRIC_SETS
from orchestrator import jobs, metrics

#: As `metrics.id`: METRIC_PLACES * metric_lines.id + place; 8 bytes each.
Ids: TypeAlias = "array.array[int]"

_LINE, _SET = METRIC_LINES.c, METRIC_SETS.c
_VALUES = tuple(f"value{place}" for place in range(METRIC_PLACES))
_LINE_COLUMNS = ("set_id", "step", "epoch", "time", "line", *_VALUES)
_SELECT_LINES = sa.select(_LINE.id, *(_LINE[name] for name in _LINE_COLUMNS)).order_by(_LINE.id)
_SHARED = ("job_row", "log_id", "attempt", "source", "rank", "world_size")
_NAMES = tuple(f"{part}{place}" for place in range(METRIC_PLACES) for part in ("name", "unit"))
_SELECT_SETS = sa.select(_SET.id, *(_SET[name] for name in (*_SHARED, *_NAMES))).order_by(_SET.id)
#: Rows fetched from the database at a time.
_FETCH_ROWS = 10_000
#: Rows of numbers that are converted at a time.
_PART_ROWS = 500


class MetricStore(base.Store):
    def add(self, row: int, lines: Sequence[metrics.ParsedLine]) -> int:
        """Store lines of a job in their order; return the number of metrics.

        Lines that are stored already are not detected: whoever reads a file moves its cursor in the
        same transaction.
        """
        known = {metric_set[1:]: metric_set.id for metric_set in self._sets_of_jobs([row])}
        cursors = log_cursors.LogCursorStore(self._connection)
        log_ids: dict[str, int | None] = {"": None}
        rows: list[tuple[object, ...]] = []
        for parsed in lines:
            path, source, attempt, rank, world_size, names, step, epoch, time, line, values = parsed
            if path not in log_ids:
                log_ids[path] = cursors.id_of(row, path)
            shared = (row, log_ids[path], attempt, source, rank, world_size)
            stored_time = None if time is None else _stored_time(time)
            # A line with more names than a set has places belongs to several sets.
            for start in range(0, len(names), METRIC_PLACES):
                key = (*shared, names[start : start + METRIC_PLACES])
                if key not in known:
                    known[key] = self._add_set(key)
                part = values[start : start + METRIC_PLACES]
                padding = (None,) * (METRIC_PLACES - len(part))
                # PostgreSQL would store NaN as a number.
                stored = (None if value != value else value for value in part)
                rows.append((known[key], step, epoch, stored_time, line, *stored, *padding))
        if rows:
            is_sqlite = self._connection.dialect.name == "sqlite"
            marks = ", ".join(["?" if is_sqlite else "%s"] * len(_LINE_COLUMNS))
            # A quarter of the time of a statement of SQLAlchemy with a dict for each row.
            self._connection.exec_driver_sql(
                f"INSERT INTO metric_lines ({', '.join(_LINE_COLUMNS)}) VALUES ({marks})", rows
            )
        return sum(len(parsed.values) for parsed in lines)

    def _add_set(self, key: tuple[Any, ...]) -> int:
        *shared, names = key
        columns = dict(zip(_SHARED, shared, strict=True))
        for place, (name, unit) in enumerate(names):
            columns |= {f"name{place}": name, f"unit{place}": unit}
        return self._insert(METRIC_SETS, columns)

    def names(self, job_rows: Collection[int]) -> list[str]:
        """Return the names of all metrics of these jobs, sorted."""
        sets = self._sets_of_jobs(job_rows)
        return sorted({name for metric_set in sets for name, _ in metric_set.names})

    def by_job(self, query: metrics.MetricQuery) -> dict[int, list[jobs.Metric]]:
        """Return metrics by job, in the query's order of jobs and the order of reading."""
        ids = self.ids(query)
        paths = log_cursors.LogCursorStore(self._connection).paths(ids) if ids else {}
        return {
            job_row: [_metric(row, paths.get(row.log_id or 0, "")) for row in self.rows(of_job)]
            for job_row, of_job in ids.items()
        }

    def ids(self, query: metrics.MetricQuery) -> dict[int, Ids]:
        """Return the numbers of metrics by job, in the query's order of jobs and of reading."""
        selected = metric_sets.selected(self._sets_of_jobs(query.job_rows), query)
        is_thinned = query.last is not None or query.every is not None or query.points is not None
        ids = (self._thinned_ids if is_thinned else self._all_ids)(selected, query)
        sorted_ids = {row: array.array("q", sorted(of_job)) for row, of_job in ids.items()}
        return {row: sorted_ids[row] for row in query.job_rows if sorted_ids.get(row)}

    def rows(self, ids: Sequence[int]) -> list[metrics.MetricRow]:
        """Return the metrics with these numbers that still exist, in the order of reading."""
        places: dict[int, list[int]] = {}
        for number in sorted(ids):
            places.setdefault(number // METRIC_PLACES, []).append(number % METRIC_PLACES)
        lines = self._rows(_SELECT_LINES.where(base.among(_LINE.id, places)))
        of_lines = self._sets(base.among(_SET.id, {line.set_id for line in lines}))
        sets = {metric_set.id: metric_set for metric_set in of_lines}
        return [
            metrics.MetricRow(
                id=line_id * METRIC_PLACES + place,
                job_row=sets[set_id].job_row,
                name=sets[set_id].names[place][0],
                value=values[place],
                unit=sets[set_id].names[place][1],
                step=step,
                epoch=epoch,
                rank=sets[set_id].rank,
                world_size=sets[set_id].world_size,
                time=time,
                attempt=sets[set_id].attempt,
                source=sets[set_id].source,
                log_id=sets[set_id].log_id,
                line=line,
            )
            for line_id, set_id, step, epoch, time, line, *values in lines
            for place in places[line_id]
        ]

    def of_file(self, row: int, path: str) -> Iterator[list[metrics.ParsedLine]]:
        """Yield the stored lines of a file as they were parsed, part by part."""
        sets = self._sets_of_file(row, path)
        statement = _SELECT_LINES.where(base.among(_LINE.set_id, sets))
        for part in self._connection.execute(statement).partitions(_FETCH_ROWS):
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
                    time=time,
                    line=line,
                    values=tuple(values[: len(sets[set_id].names)]),
                )
                for _, set_id, step, epoch, time, line, *values in part
            ]

    def file_summary(self, row: int, path: str) -> tuple[int, bool]:
        """Return how many metrics of a file are stored, and whether its line numbers started over.

        They do if it was truncated or replaced.
        """
        sets = self._sets_of_file(row, path)
        statement = sa.select(_LINE.set_id, _LINE.line).order_by(_LINE.id)
        count, previous, restarted = 0, 0, False
        for set_id, line in self._fetched(statement.where(base.among(_LINE.set_id, sets))):
            count += len(sets[set_id].names)
            restarted = restarted or (line is not None and line < previous)
            previous = line or previous
        return count, restarted

    def delete_file(self, row: int, path: str) -> None:
        """Delete the metrics of a file; the lines are deleted with their sets (foreign key)."""
        of_file = base.among(_SET.id, self._sets_of_file(row, path))
        self._connection.execute(sa.delete(METRIC_SETS).where(of_file))

    def lines_by_set(
        self, query: metrics.MetricQuery, axis: Literal["step", "epoch", "time"], after_line: int
    ) -> Iterator[metrics.SetLines]:
        """Yield all lines of the selected sets after the one with this number, in their order.

        Of the query only the jobs and the conditions on names, attempt, rank and source count.
        """
        for metric_set, places in metric_sets.selected(self._sets_of_jobs(query.job_rows), query):
            numbers = ["id", *(_VALUES[place] for place in places)]
            times = None
            if axis != "time":
                numbers.append(axis)
            else:
                of_set = _LINE.set_id == metric_set.id, _LINE.id > after_line
                times = self._scalars(sa.select(_LINE.time).where(*of_set).order_by(_LINE.id))
            ids, *values = self._columns_of_set(metric_set.id, numbers, after_line)
            yield metrics.SetLines(
                job_row=metric_set.job_row,
                attempt=metric_set.attempt,
                rank=metric_set.rank,
                names=[metric_set.names[place] for place in places],
                ids=ids,
                positions=None if axis == "time" else values.pop(),
                times=times,
                values=values,
            )

    def _columns_of_set(
        self, set_id: int, names: Sequence[str], after_line: int
    ) -> list[metrics.Numbers]:
        """Return columns of the lines of a set as numbers; NULL becomes NaN.

        In parts, which fit the cache of the processor: a third of the time of fetchall() and zip(),
        and a tenth of that of a statement of SQLAlchemy, which converts each value.
        """
        statement = (
            f"SELECT {', '.join(names)} FROM metric_lines "
            f"WHERE set_id = {set_id:d} AND id > {after_line:d} ORDER BY id"
        )
        cursor: Any = self._connection.exec_driver_sql(statement).cursor
        columns: list[metrics.Numbers] = [array.array("d") for _ in names]
        try:
            while part := cursor.fetchmany(_PART_ROWS):
                for column, values in zip(columns, zip(*part, strict=True), strict=True):
                    _extend(column, values)
        except TypeError:
            # It raises the error that names a damaged value.
            selected = sa.select(*(_LINE[name] for name in names)).where(_LINE.set_id == set_id)
            self._rows(selected)
            raise
        return columns

    def _all_ids(
        self,
        selected: Sequence[tuple[metric_sets.MetricSet, list[int]]],
        query: metrics.MetricQuery,
    ) -> dict[int, list[int]]:
        by_id = {metric_set.id: (metric_set.job_row, places) for metric_set, places in selected}
        ids: dict[int, list[int]] = {}
        for line_id, set_id in self._lines(list(by_id), query):
            job_row, places = by_id[set_id]
            ids.setdefault(job_row, []).extend([line_id * METRIC_PLACES + n for n in places])
        return ids

    def _thinned_ids(
        self,
        selected: Sequence[tuple[metric_sets.MetricSet, list[int]]],
        query: metrics.MetricQuery,
    ) -> dict[int, list[int]]:
        """Apply `last`, `every` and `points` to each job, name and rank."""
        lines: dict[int, list[int]] = {metric_set.id: [] for metric_set, _ in selected}
        for line_id, set_id in self._lines(list(lines), query):
            lines[set_id].append(line_id)
        series: dict[tuple[int, str, int | None], list[int]] = {}
        for metric_set, places in selected:
            for place in places:
                key = (metric_set.job_row, metric_set.names[place][0], metric_set.rank)
                numbers = series.setdefault(key, [])
                numbers += [line_id * METRIC_PLACES + place for line_id in lines[metric_set.id]]
        ids: dict[int, list[int]] = {}
        for (job_row, _, _), numbers in series.items():
            numbers.sort()
            numbers = numbers if query.last is None else numbers[-query.last :]
            numbers = numbers if query.every is None else numbers[:: query.every]
            numbers = numbers if query.points is None else _spread(numbers, query.points)
            ids.setdefault(job_row, []).extend(numbers)
        return ids

    def _lines(
        self, set_ids: Sequence[int], query: metrics.MetricQuery
    ) -> Iterator[tuple[int, int]]:
        """Yield IDs of lines and their sets; with `last` only that many of each set."""
        if query.last is None:
            statement = sa.select(_LINE.id, _LINE.set_id)
            statement = statement.where(base.among(_LINE.set_id, set_ids))
        else:
            # Of each set one search of the index; a window function would read all its lines.
            other = METRIC_LINES.alias().c
            nth = (
                sa.select(other.id)
                .where(other.set_id == _SET.id, *_line_conditions(query, other))
                .order_by(other.id.desc())
                .offset(query.last - 1)
                .limit(1)
            )
            statement = sa.select(_LINE.id, _SET.id).join_from(
                METRIC_SETS, METRIC_LINES, _LINE.set_id == _SET.id
            )
            first = sa.func.coalesce(nth.scalar_subquery(), 0)
            statement = statement.where(base.among(_SET.id, set_ids), _LINE.id >= first)
        return self._fetched(statement.where(*_line_conditions(query)))

    def _fetched(self, statement: sa.Select[Any]) -> Iterator[Any]:
        parts = self._connection.execute(statement).partitions(_FETCH_ROWS)
        return itertools.chain.from_iterable(parts)

    def _sets_of_jobs(self, job_rows: Iterable[int]) -> list[metric_sets.MetricSet]:
        return self._sets(base.among(_SET.job_row, list(job_rows)))

    def _sets_of_file(self, row: int, path: str) -> dict[int, metric_sets.MetricSet]:
        cursor = LOG_CURSORS.c
        log_ids = sa.select(cursor.id).where(cursor.job_row == row, cursor.path == path)
        sets = self._sets(sa.and_(_SET.job_row == row, _SET.log_id.in_(log_ids)))
        return {metric_set.id: metric_set for metric_set in sets}

    def _sets(self, condition: sa.ColumnElement[bool]) -> list[metric_sets.MetricSet]:
        sets = []
        for row in self._rows(_SELECT_SETS.where(condition)):
            shared, names = row[: len(_SHARED) + 1], row[len(_SHARED) + 1 :]
            pairs = zip(names[::2], names[1::2], strict=True)
            named = tuple((name, unit) for name, unit in pairs if name is not None)
            sets.append(metric_sets.MetricSet._make((*shared, named)))
        return sets


def _extend(column: metrics.Numbers, values: Sequence[float | None]) -> None:
    before = len(column)
    try:
        column.extend(values)  # type: ignore[arg-type]
    except TypeError:
        del column[before:]
        column.extend(math.nan if value is None else value for value in values)


def _line_conditions(
    query: metrics.MetricQuery, line: Any = _LINE
) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions of a query on single lines."""
    for column, least, most in (
        (line.step, query.first_step, query.last_step),
        (line.epoch, query.first_epoch, query.last_epoch),
        (line.time, query.since, query.until),
        # The metrics of a line are committed together.
        (line.id, None if query.after is None else query.after // METRIC_PLACES + 1, None),
    ):
        if least is not None:
            yield column >= least
        if most is not None:
            yield column <= most


def _spread(items: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the items, evenly spaced, with the first and the last."""
    count = len(items)
    if count <= most:
        return list(items)
    if most == 1:
        return [items[-1]]
    return [items[place * (count - 1) // (most - 1)] for place in range(most)]


def _metric(row: metrics.MetricRow, path: str) -> jobs.Metric:
    fields = row._asdict()
    for name in ("id", "job_row", "log_id"):
        del fields[name]
    fields["value"] = math.nan if row.value is None else row.value
    return jobs.Metric(**fields, path=path)


def _stored_time(time: datetime.datetime) -> str:
    # As SQLAlchemy writes a DateTime into SQLite, and in UTC as in all sessions with PostgreSQL.
    # strftime("%Y") gives the year 999 three digits.
    naive = time.astimezone(datetime.UTC).replace(tzinfo=None)
    return naive.isoformat(sep=" ", timespec="microseconds")
