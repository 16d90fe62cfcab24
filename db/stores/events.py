"""The history of jobs. Events are never changed."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import JOB_EVENTS, JOBS
from orchestrator import jobs

_EVENT = JOB_EVENTS.c
_SELECT = base.select(JOB_EVENTS, jobs.JobEvent)


class EventStore(base.Store):
    """The history of jobs within one transaction."""

    def add(self, row: int, event: jobs.JobEvent) -> None:
        """Store an event of a job."""
        self.add_many([(row, event)])

    def add_many(self, events: Iterable[tuple[int, jobs.JobEvent]]) -> None:
        """Store events, each with its job's row."""
        self._insert_many(JOB_EVENTS, [{"job_row": row, **vars(event)} for row, event in events])

    def of_job(self, row: int) -> list[jobs.JobEvent]:
        """Return the history of a job, oldest first."""
        statement = _SELECT.where(_EVENT.job_row == row).order_by(_EVENT.id)
        return self._records(jobs.JobEvent, statement)

    def newest(self) -> int:
        """Return the row of the newest event, 0 if there is none."""
        return self._connection.scalar(sa.select(sa.func.max(_EVENT.id))) or 0

    def after(self, row: int, limit: int) -> list[tuple[int, int, jobs.JobEvent]]:
        """Return the next events after this one, oldest first, each with its and its job's row."""
        statement = _SELECT.add_columns(_EVENT.id, _EVENT.job_row).where(_EVENT.id > row)
        rows = [row._asdict() for row in self._rows(statement.order_by(_EVENT.id).limit(limit))]
        return [(row.pop("id"), row.pop("job_row"), jobs.JobEvent(**row)) for row in rows]

    def cause(self, job_row: int, attempt: int) -> str:
        """Return the failure cause of an attempt: "CAUSE: a sentence"; "" if there is none."""
        statement = sa.select(_EVENT.detail).where(
            _EVENT.job_row == job_row, _EVENT.attempt == attempt, _EVENT.kind == "cause"
        )
        return self._connection.scalar(statement.order_by(_EVENT.id.desc()).limit(1)) or ""

    def cancel_requested(self, rows: Collection[int]) -> set[int]:
        """Return those of the jobs whose newest attempt orchestrator was asked to cancel."""
        return {*self.first("cancel", rows)}

    def first(self, kind: str, rows: Collection[int]) -> dict[int, datetime.datetime]:
        """Return by row the time of the first event of a kind in the newest attempt."""
        statement = (
            sa.select(_EVENT.job_row, sa.func.min(_EVENT.at))
            .join(JOBS, JOBS.c.row == _EVENT.job_row)
            .where(base.among(_EVENT.job_row, rows), _EVENT.kind == kind)
            .where(_EVENT.attempt == JOBS.c.attempt)
            .group_by(_EVENT.job_row)
        )
        return self._pairs(statement)
