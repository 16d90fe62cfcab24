"""The starts of jobs, their history, and the resources that each attempt used."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator

import sqlalchemy as sa

from db import queries
from db.tables.jobs import ATTEMPTS, JOB_EVENTS, USED_FIGURES
from orchestrator import jobs

_ATTEMPT, _EVENT = ATTEMPTS.c, JOB_EVENTS.c


class AttemptStore(queries.Store):
    """The attempts of jobs within one transaction."""

    def put(self, attempts: Iterable[tuple[int, jobs.Attempt]]) -> None:
        """Store attempts, each with its job's row; one with the same number is replaced."""
        self._put(
            ATTEMPTS,
            (
                {"job_row": row, **vars(attempt), "state": attempt.state.value}
                for row, attempt in attempts
            ),
        )

    def of_job(self, row: int) -> list[jobs.Attempt]:
        """Return the attempts of a job, oldest first."""
        return [attempt for _, attempt in self._read([row])]

    def of_jobs(self, rows: Collection[int]) -> dict[int, list[jobs.Attempt]]:
        """Return the attempts of many jobs by row, each job's oldest first."""
        attempts: dict[int, list[jobs.Attempt]] = {}
        for row, attempt in self._read(rows):
            attempts.setdefault(row, []).append(attempt)
        return attempts

    def started(
        self,
        rows: Collection[int],
        *,
        since: datetime.datetime | None,
        until: datetime.datetime | None,
    ) -> list[tuple[int, jobs.Attempt]]:
        """Return the attempts of these jobs that ran between two times, each with its job's row.

        The end of an attempt may be unknown, or still to come.
        """
        conditions: list[sa.ColumnElement[bool]] = [_ATTEMPT.started_at.is_not(None)]
        if since is not None:
            conditions.append(sa.or_(_ATTEMPT.ended_at.is_(None), _ATTEMPT.ended_at >= since))
        if until is not None:
            conditions.append(_ATTEMPT.started_at < until)
        return [*self._read(rows, *conditions)]

    def _read(
        self, rows: Collection[int], *conditions: sa.ColumnElement[bool]
    ) -> Iterator[tuple[int, jobs.Attempt]]:
        of_jobs = queries.among(_ATTEMPT.job_row, rows)
        statement = sa.select(ATTEMPTS).where(of_jobs, *conditions)
        for row in self._rows(statement.order_by(_ATTEMPT.job_row, _ATTEMPT.number)):
            columns = {**row._mapping, "state": jobs.JobState(row.state)}
            yield columns.pop("job_row"), jobs.Attempt(**columns)

    def used_figures(self, row: int, attempt: int) -> str | None:
        """Return what `put_used_figures` stored for an attempt."""
        is_attempt = USED_FIGURES.c.job_row == row, USED_FIGURES.c.attempt == attempt
        return self._connection.scalar(sa.select(USED_FIGURES.c.figures).where(*is_attempt))

    def put_used_figures(self, row: int, attempt: int, figures: str) -> None:
        """Store what an attempt used, as JSON."""
        self._put(USED_FIGURES, [{"job_row": row, "attempt": attempt, "figures": figures}])


class EventStore(queries.Store):
    """The history of jobs within one transaction; events are never changed."""

    def add(self, row: int, event: jobs.JobEvent) -> None:
        """Store an event of a job."""
        self.add_many([(row, event)])

    def add_many(self, events: Iterable[tuple[int, jobs.JobEvent]]) -> None:
        """Store events, each with its job's row."""
        columns = [
            {"job_row": row, **vars(event), "state": event.state and event.state.value}
            for row, event in events
        ]
        if columns:
            self._connection.execute(sa.insert(JOB_EVENTS), columns)

    def of_job(self, row: int) -> list[jobs.JobEvent]:
        """Return the history of a job, oldest first."""
        columns = [column for column in _EVENT if column.name not in ("id", "job_row")]
        statement = sa.select(*columns).where(_EVENT.job_row == row).order_by(_EVENT.id)
        return [
            jobs.JobEvent(**{**event._mapping, "state": event.state and jobs.JobState(event.state)})
            for event in self._rows(statement)
        ]

    def cancel_requested(self, rows: Collection[int]) -> set[int]:
        """Return the rows of those of the jobs for which a cancellation was requested."""
        is_cancel = queries.among(_EVENT.job_row, rows), _EVENT.kind == "cancel"
        return {*self._connection.scalars(sa.select(_EVENT.job_row).where(*is_cancel))}
