"""Decisions about failed jobs, and the chains of jobs that continue one another."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, cast

import sqlalchemy as sa

from db import queries
from db.tables.jobs import JOB_EVENTS, JOBS, SUBMISSIONS
from db.tables.metrics import METRIC_LINES, METRIC_SETS
from db.tables.service import RECOVERIES
from orchestrator import jobs
from orchestrator.recovery import records

_JOB, _RECOVERY = JOBS.c, RECOVERIES.c


class RecoveryStore(queries.Store):
    """The decisions within one transaction."""

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
            statement = statement.join(SUBMISSIONS, SUBMISSIONS.c.id == _JOB.submission_id)
            statement = statement.where(SUBMISSIONS.c.cluster.in_(clusters))
        return [*self._connection.scalars(statement.order_by(_JOB.row).limit(limit))]

    def planned(
        self, now: datetime.datetime, limit: int, after: int = 0
    ) -> list[records.StoredDecision]:
        """Return the decisions that are due, oldest first; only IDs greater than `after`."""
        due = _RECOVERY.state == "planned", _RECOVERY.due_at <= now, _RECOVERY.id > after
        statement = sa.select(RECOVERIES).where(*due).order_by(_RECOVERY.id).limit(limit)
        return _decisions(self._rows(statement))

    def next_due_at(self, after: datetime.datetime) -> datetime.datetime | None:
        """Return the first time later than `after` at which a decision is due."""
        first = sa.select(sa.func.min(_RECOVERY.due_at))
        is_later = _RECOVERY.state == "planned", _RECOVERY.due_at > after
        at: datetime.datetime | None = self._connection.scalar(first.where(*is_later))
        return at

    def add(self, job: jobs.Job, decision: records.Decision, at: datetime.datetime) -> int:
        """Store a decision about the newest attempt and return its ID.

        The database refuses a second decision about the same attempt.
        """
        is_done = decision.action is records.Action.NONE
        changes = json.dumps(dict(decision.changes), ensure_ascii=False)
        return self._insert(
            RECOVERIES,
            {
                "job_row": job.row,
                "attempt": job.attempt,
                "cause": decision.cause,
                "rule": decision.rule,
                "action": str(decision.action),
                "state": "done" if is_done else "planned",
                "detail": decision.why,
                "decided_at": at,
                "due_at": decision.due_at,
                "step": decision.step,
                "changes": changes if decision.changes else None,
            },
        )

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
        is_planned = _RECOVERY.id == decision.id, _RECOVERY.state == "planned"
        return self._changed(sa.update(RECOVERIES).where(*is_planned).values(columns)) == 1

    def withdraw(self, job_rows: Collection[int], detail: str) -> set[int]:
        """Refuse all planned decisions about these jobs, and allow no new ones.

        Returns the rows of the jobs that had a planned decision.
        """
        planned = [stored for stored in self.of_jobs(job_rows) if stored.state == "planned"]
        is_undecided = queries.among(_JOB.row, job_rows), _JOB.recovers.is_(True)
        undecided = sa.update(JOBS).where(*is_undecided)
        self._connection.execute(undecided.values(recovers=None, version=_JOB.version + 1))
        return {
            stored.job_row for stored in planned if self.finish(stored, "refused", detail=detail)
        }

    def of_jobs(self, job_rows: Collection[int]) -> list[records.StoredDecision]:
        """Return the decisions about these jobs, oldest first."""
        statement = sa.select(RECOVERIES).where(queries.among(_RECOVERY.job_row, job_rows))
        return _decisions(self._rows(statement.order_by(_RECOVERY.id)))

    def away_since(self, job_rows: Collection[int]) -> dict[int, datetime.datetime]:
        """Return by row since when a folder of these jobs cannot be seen."""
        return self._first_events(records.AWAY, job_rows)

    def cancel_requested(self, job_rows: Collection[int]) -> set[int]:
        """Return the jobs whose newest attempt somebody asked to cancel."""
        return set(self._first_events("cancel", job_rows))

    def _first_events(self, kind: str, job_rows: Collection[int]) -> dict[int, datetime.datetime]:
        """Return by row the time of the first event of a kind in the newest attempt."""
        event = JOB_EVENTS.c
        statement = (
            sa.select(event.job_row, sa.func.min(event.at))
            .join(JOBS, _JOB.row == event.job_row)
            .where(
                queries.among(event.job_row, job_rows),
                event.kind == kind,
                event.attempt == _JOB.attempt,
            )
            .group_by(event.job_row)
        )
        return {row: at for row, at in self._rows(statement)}

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
        job = JOBS.alias("job")
        # A job is newer than the job that it continues, so the recursion always ends.
        earlier = sa.select(job.c.row, job.c.continues).join(
            link, sa.and_(job.c.row == link.c.continues, job.c.row < link.c.row)
        )
        link = link.union_all(earlier)
        statement = sa.select(link.c.row).where(link.c.row != row).order_by(link.c.row)
        return [*self._connection.scalars(statement)]

    def last_in_chain(self, job_rows: Collection[int]) -> dict[int, int]:
        """Return by row the row of the last job in the chain of each of these jobs."""
        last = {row: row for row in job_rows}
        while last and (following := self._successors(last.values())):
            last = {row: following.get(newest, newest) for row, newest in last.items()}
        return last

    def _successors(self, job_rows: Iterable[int]) -> dict[int, int]:
        """Return by row the row of the job that continues each of these jobs."""
        # A job is newer than the job that it continues, so following the chain always ends.
        statement = sa.select(_JOB.continues, _JOB.row).where(
            queries.among(_JOB.continues, list(job_rows)), _JOB.row > _JOB.continues
        )
        return {continued: row for continued, row in self._rows(statement.order_by(_JOB.row))}

    def highest_step(self, row: int, attempt: int) -> int | None:
        """Return the highest step in the metrics of an attempt."""
        line, metric_set = METRIC_LINES.c, METRIC_SETS.c
        highest = sa.select(sa.func.max(line.step)).join(METRIC_SETS, line.set_id == metric_set.id)
        is_attempt = metric_set.job_row == row, metric_set.attempt == attempt
        step: int | None = self._connection.scalar(highest.where(*is_attempt))
        return step


def _decisions(rows: Iterable[sa.Row[Any]]) -> list[records.StoredDecision]:
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
