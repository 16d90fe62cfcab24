"""Whether something has changed that people look at: small numbers that grow with each change."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import NamedTuple

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import JOB_EVENTS, JOBS, REFRESHES
from db.tables.metrics import METRIC_LINES, METRIC_PLACES, METRIC_SETS
from db.tables.service import GRAPHS, SCHEDULES, TRIGGERS

#: The newest ones: older triggers do not change.
_TRIGGERS = 500


class JobMark(NamedTuple):
    """Numbers of which at least one changes when something of a job changes."""

    #: version of the row
    version: int
    #: number of the newest event
    event: int
    #: at least the number of the newest metric (MetricRow.id); 0: none
    metric: int


class ChangeStore(base.Store):
    """Marks: whoever keeps one sees by the next one whether something has changed."""

    def of_all(self) -> str:
        """Return a text that changes with the history of any job, and with Slurm's errors."""
        events = self.newest_event()
        failing = sa.select(REFRESHES.c.cluster, REFRESHES.c.failing_since)
        states = sorted((cluster, str(since)) for cluster, since in self._rows(failing))
        return f"{events} {states}"

    def of_results(self) -> str:
        """Return a text that changes also with each new metric."""
        return f"{self.of_all()} {self.newest_metric()}"

    def of_schedules(self) -> str:
        """Return a text that changes also with schedules and with decisions about their times."""
        schedules = self._rows(sa.select(SCHEDULES.c.id, SCHEDULES.c.version))
        newest = sa.select(TRIGGERS.c.id, TRIGGERS.c.state, TRIGGERS.c.verdict)
        triggers = self._rows(newest.order_by(TRIGGERS.c.id.desc()).limit(_TRIGGERS))
        content = repr([*map(tuple, schedules), *map(tuple, triggers)])
        return f"{self.of_all()} {zlib.crc32(content.encode())}"

    def of_graphs(self) -> str:
        """Return a text that changes also with graphs."""
        counted = sa.select(GRAPHS.c.state, sa.func.count()).group_by(GRAPHS.c.state)
        return f"{self.of_all()} {sorted(self._pairs(counted).items())}"

    def of_refreshes(self) -> str:
        """Return a text that changes each time that Slurm is asked."""
        return str(sorted(map(tuple, self._rows(sa.select(REFRESHES)))))

    def newest_event(self) -> int:
        """Return a number that grows with each event of any job; 0: there is none."""
        return self._connection.scalar(sa.select(sa.func.max(JOB_EVENTS.c.id))) or 0

    def jobs_with_events(self, after: int, *, other_than: str = "") -> set[int]:
        """Return the rows of the jobs that have events after the one with this number.

        other_than: the kind of events that do not count.
        """
        # Not DISTINCT, here and below: SQLite would scan the whole index of the column.
        is_new = JOB_EVENTS.c.id > after, JOB_EVENTS.c.kind != other_than
        return {*self._scalars(sa.select(JOB_EVENTS.c.job_row).where(*is_new))}

    def newest_metric_set(self) -> int:
        """Return a number that grows with each new name of a metric of any job."""
        return self._connection.scalar(sa.select(sa.func.max(METRIC_SETS.c.id))) or 0

    def jobs_with_metrics(self, after: int) -> set[int]:
        """Return the rows of the jobs that have metrics after newest_metric() was this number."""
        new = sa.select(METRIC_LINES.c.set_id).where(METRIC_LINES.c.id > after)
        return {*self._scalars(sa.select(METRIC_SETS.c.job_row).where(METRIC_SETS.c.id.in_(new)))}

    def newest_metric(self) -> int:
        """Return a number that grows with each new metric of any job."""
        return self._connection.scalar(sa.select(sa.func.max(METRIC_LINES.c.id))) or 0

    def of_jobs(self, rows: Collection[int]) -> dict[int, JobMark]:
        """Return the marks of these jobs, by row; those that do not exist are left out."""
        event = (
            sa.select(sa.func.max(JOB_EVENTS.c.id))
            .where(JOB_EVENTS.c.job_row == JOBS.c.row)
            .scalar_subquery()
        )
        # The newest line of each set: the index has them in order.
        line = (
            sa.select(sa.func.max(METRIC_LINES.c.id))
            .where(METRIC_LINES.c.set_id == METRIC_SETS.c.id)
            .scalar_subquery()
        )
        of_job = METRIC_SETS.c.job_row == JOBS.c.row
        metric = sa.select(sa.func.max(line)).where(of_job).scalar_subquery()
        statement = sa.select(JOBS.c.row, JOBS.c.version, event, metric)
        return {
            row: JobMark(version, newest_event or 0, ((newest_line or -1) + 1) * METRIC_PLACES)
            for row, version, newest_event, newest_line in self._rows(
                statement.where(base.among(JOBS.c.row, rows))
            )
        }
