"""The starts of jobs, their history, and the resources that each attempt used."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator
from typing import cast

import sqlalchemy as sa

from db import dialects, models, queries, statements
from orchestrator import jobs

_ATTEMPTS = cast("sa.Table", models.Attempt.__table__)
_EVENTS = models.JobEvent.__table__
_ATTEMPT = _ATTEMPTS.c
_EVENT = _EVENTS.c
#: Built once: to build a statement takes longer than to run it.
_ADD_EVENTS = sa.insert(_EVENTS)  # type: ignore[arg-type]


class AttemptStore:
    """The attempts of jobs within one transaction."""

    def __init__(self, db: statements.Session) -> None:
        self._db = db

    def put(self, attempts: Iterable[tuple[int, jobs.Attempt]]) -> None:
        """Store attempts, each with its job's row; one with the same number is replaced."""
        columns = [
            {"job_row": row, **vars(attempt), "state": attempt.state.value}
            for row, attempt in attempts
        ]
        if columns:
            dialects.upsert(self._db, _ATTEMPTS, columns, ["job_row", "number"])

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
        """Return the attempts of these jobs that ran between two moments, each with its job's row.

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
        for portion in queries.portions(rows):
            statement = sa.select(_ATTEMPTS).where(_ATTEMPT.job_row.in_(portion), *conditions)
            ordered = statement.order_by(_ATTEMPT.job_row, _ATTEMPT.number)
            for row in self._db.execute(ordered):
                columns = {**row._mapping, "state": jobs.JobState(row.state)}
                yield columns.pop("job_row"), jobs.Attempt(**columns)

    def used_figures(self, row: int, attempt: int) -> str | None:
        """Return what `put_used_figures` stored for an attempt."""
        used = models.UsedFigures.__table__.c
        wanted = (used.job_row == row, used.attempt == attempt)
        return self._db.scalar(sa.select(used.figures).where(*wanted))

    def put_used_figures(self, row: int, attempt: int, figures: str) -> None:
        """Store what an attempt used, as JSON."""
        self._db.merge(models.UsedFigures(job_row=row, attempt=attempt, figures=figures))
        self._db.flush()


class EventStore:
    """The history of jobs within one transaction; events are never changed."""

    def __init__(self, db: statements.Session) -> None:
        self._db = db

    def add(self, row: int, event: jobs.JobEvent) -> None:
        """Store an event of a job."""
        self.add_many([(row, event)])

    def add_many(self, events: Iterable[tuple[int, jobs.JobEvent]]) -> None:
        """Store events, each with its job's row."""
        columns = [
            {"job_row": row, **vars(event), "state": event.state and event.state.value}
            for row, event in events
        ]
        if len(columns) == 1:
            self._db.run(_ADD_EVENTS, columns[0])
        elif columns:
            self._db.connection().execute(_ADD_EVENTS, columns)

    def of_job(self, row: int) -> list[jobs.JobEvent]:
        """Return the history of a job, oldest first."""
        columns = [column for column in _EVENT if column.name not in ("id", "job_row")]
        statement = sa.select(*columns).where(_EVENT.job_row == row).order_by(_EVENT.id)
        return [
            jobs.JobEvent(**{**event._mapping, "state": event.state and jobs.JobState(event.state)})
            for event in self._db.execute(statement)
        ]

    def cancel_requested(self, rows: Collection[int]) -> set[int]:
        """Return the rows of those of the jobs for which a cancellation was requested."""
        requested: set[int] = set()
        for portion in queries.portions(rows):
            cancels = (_EVENT.job_row.in_(portion), _EVENT.kind == "cancel")
            requested.update(self._db.scalars(sa.select(_EVENT.job_row).where(*cancels)))
        return requested
