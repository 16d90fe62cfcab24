"""Decisions about failed jobs, and the chains of jobs that continue one another."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable
from typing import Any, Literal

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import JOBS, SUBMISSIONS
from db.tables.metrics import METRIC_LINES, METRIC_SETS
from db.tables.service import RECOVERIES
from orchestrator import jobs
from orchestrator.recovery import records

_JOB, _RECOVERY = JOBS.c, RECOVERIES.c


class RecoveryStore(base.Store):
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
        return self._scalars(statement.order_by(_JOB.row).limit(limit))

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
        return self._scalar(datetime.datetime, first.where(*is_later))

    def add(self, job: jobs.Job, decision: records.Decision, at: datetime.datetime) -> int:
        """Store a decision about the newest attempt and return its ID.

        The database refuses a second decision about the same attempt.
        """
        fields = {**vars(decision), "job_row": job.row, "attempt": job.attempt, "decided_at": at}
        fields["state"] = "done" if decision.action is records.Action.NONE else "planned"
        return self._insert(RECOVERIES, fields)

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
        fields = {
            "state": state,
            "next_job_row": next_job_row,
            "detail": detail or decision.detail,
            "action": action or decision.action,
        }
        is_planned = _RECOVERY.id == decision.id, _RECOVERY.state == "planned"
        return self._update(RECOVERIES, fields, *is_planned) == 1

    def withdraw(self, job_rows: Collection[int], detail: str) -> set[int]:
        """Refuse all planned decisions about these jobs, and allow no new ones.

        Returns the rows of the jobs that had a planned decision.
        """
        planned = [stored for stored in self.of_jobs(job_rows) if stored.state == "planned"]
        is_undecided = base.among(_JOB.row, job_rows), _JOB.recovers.is_(True)
        self._update(JOBS, {"recovers": None, "version": _JOB.version + 1}, *is_undecided)
        return {
            stored.job_row for stored in planned if self.finish(stored, "refused", detail=detail)
        }

    def of_jobs(self, job_rows: Collection[int]) -> list[records.StoredDecision]:
        """Return the decisions about these jobs, oldest first."""
        statement = sa.select(RECOVERIES).where(base.among(_RECOVERY.job_row, job_rows))
        return _decisions(self._rows(statement.order_by(_RECOVERY.id)))

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
        return self._scalars(statement)

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
            base.among(_JOB.continues, list(job_rows)), _JOB.row > _JOB.continues
        )
        return self._pairs(statement.order_by(_JOB.row))

    def highest_step(self, row: int, attempt: int) -> int | None:
        line, metric_set = METRIC_LINES.c, METRIC_SETS.c
        highest = sa.select(sa.func.max(line.step)).join(METRIC_SETS, line.set_id == metric_set.id)
        is_attempt = metric_set.job_row == row, metric_set.attempt == attempt
        return self._scalar(int, highest.where(*is_attempt))


def _decisions(rows: Iterable[sa.Row[Any]]) -> list[records.StoredDecision]:
    return [
        records.StoredDecision(**{**row._mapping, "action": records.Action(row.action)})
        for row in rows
    ]
