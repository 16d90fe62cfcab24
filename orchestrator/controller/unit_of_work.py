"""One transaction, with the stores that are not in `db` yet."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from db import metrics, replacing, series, work
from orchestrator import jobs as records
from orchestrator.controller import parts, rows

#: What callers that do not know the database ask for, and get.
MetricQuery: TypeAlias = series.MetricQuery
MetricRow: TypeAlias = series.MetricRow
Series: TypeAlias = series.Series
Held: TypeAlias = replacing.Held
Numbers: TypeAlias = metrics.Numbers
LogCursor: TypeAlias = rows.LogCursor
StoredMetric: TypeAlias = rows.StoredMetric


class UnitOfWork(parts.Parts, work.UnitOfWork):
    """One transaction. Inside `reading()` the database refuses changes."""

    def add_metrics(self, row: int, found: Sequence[records.Metric]) -> int:
        """Store metrics of a job; returns how many they are."""
        return self.add_numbers(row, rows.numbers_of(found))

    def add_numbers(self, row: int, found: Sequence[Numbers]) -> int:
        """Store the numbers of lines of a job; returns how many they are."""
        return metrics.add_numbers(self._db, row, found, _now())

    def metrics(self, query: MetricQuery) -> list[StoredMetric]:
        """Return metrics in the order of jobs, and in each of reading."""
        ids = series.ids(self._db, query)
        if not ids:
            return []
        owners = {
            job.row: job for job in self.jobs.find(records.JobQuery(rows=list(ids), limit=None))
        }
        paths = {cursor.id: cursor.path for cursor in metrics.log_cursors(self._db, list(ids))}
        return [
            StoredMetric(
                row=row.id,
                job=owners[row.job_row],
                metric=rows.metric_record(row, paths.get(row.log_id or 0)),
            )
            for mine in ids.values()
            for row in series.rows(self._db, mine)
        ]

    def series_of(self, job_rows: Iterable[int]) -> list[Series]:
        """Return what numbers there are of these jobs, by name, source and attempt."""
        return series.series(self._db, job_rows)

    def metric_ids(self, query: MetricQuery) -> dict[int, series.Ids]:
        """Return the numbers of the rows that are wanted, by job, in the order of reading."""
        return series.ids(self._db, query)

    def metric_rows(self, ids: Sequence[int]) -> list[MetricRow]:
        """Return these rows in the order of reading, less those that are not there any more."""
        return series.rows(self._db, ids)

    def held_numbers(self, row: int, path: str) -> Held:
        """Return what is stored of a file of this job."""
        return replacing.held(self._db, row, path)

    def drop_numbers(self, row: int, path: str) -> None:
        """Take out what is stored of a file of this job."""
        replacing.drop(self._db, row, path)

    def numbers_of_file(self, row: int, path: str) -> Iterable[list[Numbers]]:
        """Yield what is stored of a file of this job, part by part."""
        return replacing.lines(self._db, row, path)

    def log_cursors(self, row: int) -> list[LogCursor]:
        return self.log_cursors_of([row]).get(row, [])

    def log_cursors_of(self, job_rows: Collection[int]) -> dict[int, list[LogCursor]]:
        """Return the cursors of many jobs, by row."""
        found: dict[int, list[LogCursor]] = {}
        for cursor in metrics.log_cursors(self._db, job_rows):
            found.setdefault(cursor.job_row, []).append(rows.cursor_record(cursor))
        return found

    def put_log_cursor(self, row: int, cursor: LogCursor, *, expect: LogCursor | None) -> bool:
        """Move a cursor from `expect` (none: never read); false when another reader was faster.

        The metrics read on the way belong into the same transaction, after a true answer: then
        each is stored once, whatever reads or dies meanwhile.
        """
        now = _now()
        found = metrics.log_cursor(self._db, row, cursor.path, now)
        if rows.cursor_record(found) != (expect or LogCursor(path=cursor.path)):
            return False
        found.device, found.inode = str(cursor.device), str(cursor.inode)
        found.offset_bytes, found.line = cursor.offset_bytes, cursor.line
        found.carry, found.updated_at = cursor.carry, now
        self._db.flush()
        return True


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
