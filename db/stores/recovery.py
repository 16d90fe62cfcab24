"""Decisions about failed jobs, and the chains of jobs that continue one another."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, cast

import sqlalchemy as sa
from sqlalchemy import orm

from db import models, queries, service_tables
from orchestrator import jobs
from orchestrator.recovery import records

_JOBS = models.Job.__table__
_JOB = _JOBS.c
_RECOVERY = service_tables.Recovery


class RecoveryStore:
    """The decisions within one transaction. Nothing here commits."""

    def __init__(self, session: orm.Session) -> None:
        self._session = session

    def undecided(self, clusters: Collection[str] | None, limit: int, after: int = 0) -> list[int]:
        """Return the rows of ended jobs whose newest attempt needs a decision, oldest first.

        Only rows greater than `after`; `clusters` None: of any cluster. The search uses an index
        that contains only the jobs whose end needs a decision.
        """
        decided = sa.exists().where(
            _RECOVERY.job_row == _JOB.row, _RECOVERY.attempt == _JOB.attempt
        )
        statement = sa.select(_JOB.row).where(
            _JOB.recovers.is_(True),
            _JOB.settled.is_(True),
            _JOB.resend_at.is_(None),
            _JOB.row > after,
            ~decided,
        )
        if clusters is not None:
            submission = models.Submission.__table__
            statement = statement.join(submission, submission.c.id == _JOB.submission_id)
            statement = statement.where(submission.c.cluster.in_(clusters))
        return [*self._session.scalars(statement.order_by(_JOB.row).limit(limit))]

    def planned(
        self, now: datetime.datetime, limit: int, after: int = 0
    ) -> list[records.StoredDecision]:
        """Return the decisions that are due, oldest first; only IDs greater than `after`."""
        due = sa.select(_RECOVERY).where(_RECOVERY.state == "planned", _RECOVERY.due_at <= now)
        due = due.where(_RECOVERY.id > after).order_by(_RECOVERY.id).limit(limit)
        return _decisions(self._session.scalars(due))

    def next_due_at(self, after: datetime.datetime) -> datetime.datetime | None:
        """Return the first time later than `after` at which a decision is due."""
        first = sa.select(sa.func.min(_RECOVERY.due_at))
        return self._session.scalar(
            first.where(_RECOVERY.state == "planned", _RECOVERY.due_at > after)
        )

    def add(self, job: jobs.Job, decision: records.Decision, at: datetime.datetime) -> int:
        """Store a decision about the newest attempt and return its ID.

        The database refuses a second decision about the same attempt.
        """
        row = _RECOVERY(
            job_row=job.row,
            attempt=job.attempt,
            cause=decision.cause,
            rule=decision.rule,
            action=str(decision.action),
            state="done" if decision.action is records.Action.NONE else "planned",
            detail=decision.why,
            decided_at=at,
            due_at=decision.due_at,
            step=decision.step,
            changes=json.dumps(dict(decision.changes), ensure_ascii=False)
            if decision.changes
            else None,
        )
        self._session.add(row)
        self._session.flush()
        return row.id

    def finish(
        self,
        decision: records.StoredDecision,
        state: Literal["done", "refused"],
        *,
        detail: str | None = None,
        next_job_row: int | None = None,
        action: records.Action | None = None,
    ) -> bool:
        """Store the outcome of a planned decision; False if it is not planned any more."""
        columns: dict[str, object] = {"state": state, "next_job_row": next_job_row}
        if detail is not None:
            columns["detail"] = detail
        if action is not None:
            columns["action"] = str(action)
        planned = sa.update(_RECOVERY).where(
            _RECOVERY.id == decision.id, _RECOVERY.state == "planned"
        )
        return queries.row_count(self._session.execute(planned.values(columns))) == 1

    def withdraw(self, job_rows: Collection[int], detail: str) -> set[int]:
        """Refuse all planned decisions about these jobs, and allow no new ones.

        Returns the rows of the jobs that had a planned decision.
        """
        planned = [stored for stored in self.of_jobs(job_rows) if stored.state == "planned"]
        undecided = sa.update(_JOBS).where(  # type: ignore[arg-type]
            queries.among(_JOB.row, job_rows), _JOB.recovers.is_(True)
        )
        self._session.execute(undecided.values(recovers=None, version=_JOB.version + 1))
        return {
            stored.job_row for stored in planned if self.finish(stored, "refused", detail=detail)
        }

    def of_jobs(self, job_rows: Collection[int]) -> list[records.StoredDecision]:
        """Return the decisions about these jobs, oldest first."""
        statement = sa.select(_RECOVERY).where(queries.among(_RECOVERY.job_row, job_rows))
        return _decisions(self._session.scalars(statement.order_by(_RECOVERY.id)))

    def away_since(self, job_rows: Collection[int]) -> dict[int, datetime.datetime]:
        """Return by row since when a folder of these jobs cannot be seen."""
        return self._first_events(records.AWAY, job_rows)

    def cancel_requested(self, job_rows: Collection[int]) -> set[int]:
        """Return the jobs whose newest attempt somebody asked to cancel."""
        return set(self._first_events("cancel", job_rows))

    def _first_events(self, kind: str, job_rows: Collection[int]) -> dict[int, datetime.datetime]:
        """Return by row the time of the first event of a kind in the newest attempt."""
        event = models.JobEvent
        statement = (
            sa.select(event.job_row, sa.func.min(event.at))
            .join(models.Job, models.Job.row == event.job_row)
            .where(
                queries.among(event.job_row, job_rows),
                event.kind == kind,
                event.attempt == models.Job.attempt,
            )
            .group_by(event.job_row)
        )
        return {row: at for row, at in self._session.execute(statement)}

    def chain(self, row: int) -> list[int]:
        """Return the rows of the jobs of a chain in their order; a job may be alone in it."""
        chain = [*self.predecessors(row), row]
        while (following := self._successors(chain[-1:])) and chain[-1] in following:
            chain.append(following[chain[-1]])
        return chain

    def predecessors(self, row: int) -> list[int]:
        """Return the rows of the jobs that this job continues, the first of the chain first."""
        link = (
            sa.select(_JOB.row, _JOB.continues).where(_JOB.row == row).cte("link", recursive=True)
        )
        job = _JOBS.alias("job")
        # A job is newer than the job that it continues, so the recursion ends whatever is stored.
        earlier = sa.select(job.c.row, job.c.continues).join(
            link, sa.and_(job.c.row == link.c.continues, job.c.row < link.c.row)
        )
        link = link.union_all(earlier)
        statement = sa.select(link.c.row).where(link.c.row != row).order_by(link.c.row)
        return [*self._session.scalars(statement)]

    def last_in_chain(self, job_rows: Collection[int]) -> dict[int, int]:
        """Return by row the row of the last job in the chain of each of these jobs."""
        last = {row: row for row in job_rows}
        while last and (following := self._successors(last.values())):
            last = {row: following.get(newest, newest) for row, newest in last.items()}
        return last

    def _successors(self, job_rows: Iterable[int]) -> dict[int, int]:
        """Return by row the row of the job that continues each of these jobs."""
        # A job is newer than the job that it continues, so following them ends whatever is stored.
        statement = sa.select(_JOB.continues, _JOB.row).where(
            queries.among(_JOB.continues, list(job_rows)), _JOB.row > _JOB.continues
        )
        found = self._session.execute(statement.order_by(_JOB.row))
        return {continued: row for continued, row in found}

    def highest_step(self, row: int, attempt: int) -> int | None:
        """Return the highest step in the metrics of an attempt."""
        metrics, line = models.MetricSet, models.MetricLine
        statement = sa.select(sa.func.max(line.step)).join(metrics, line.set_id == metrics.id)
        return self._session.scalar(
            statement.where(metrics.job_row == row, metrics.attempt == attempt)
        )


def _decisions(rows: Iterable[service_tables.Recovery]) -> list[records.StoredDecision]:
    return [
        records.StoredDecision(
            id=row.id,
            job_row=row.job_row,
            attempt=row.attempt,
            decision=records.Decision(
                action=records.Action(row.action),
                cause=row.cause,
                rule=row.rule,
                why=row.detail,
                due_at=row.due_at,
                changes=_changes(row.changes),
                step=row.step,
            ),
            state=cast("Literal['planned', 'done', 'refused']", row.state),
            detail=row.detail,
            decided_at=row.decided_at,
            next_job_row=row.next_job_row,
        )
        for row in rows
    ]


def _changes(text: str | None) -> dict[str, jobs.ArgumentValue]:
    changes: Mapping[str, Any] = json.loads(text) if text else {}
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in changes.items()
    }
