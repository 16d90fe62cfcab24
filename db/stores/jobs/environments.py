"""Environments, each stored once, and those of attempts."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import ATTEMPT_ENVIRONMENTS, ATTEMPTS, ENVIRONMENTS, JOBS, SUBMISSIONS
from orchestrator import jobs

_OF_ATTEMPT, _ENVIRONMENT = ATTEMPT_ENVIRONMENTS.c, ENVIRONMENTS.c
_ATTEMPT, _JOB, _SUBMISSION = ATTEMPTS.c, JOBS.c, SUBMISSIONS.c
_SELECT_UNREAD = (
    sa.select(
        *(_ATTEMPT.job_row, _ATTEMPT.number, _ATTEMPT.started_at, _ATTEMPT.ended_at),
        *(_JOB.array_task, _SUBMISSION.run_dir),
    )
    .join_from(ATTEMPTS, JOBS, _JOB.row == _ATTEMPT.job_row)
    .join(SUBMISSIONS, _SUBMISSION.id == _JOB.submission_id)
    .outerjoin(
        ATTEMPT_ENVIRONMENTS,
        sa.and_(_OF_ATTEMPT.job_row == _ATTEMPT.job_row, _OF_ATTEMPT.attempt == _ATTEMPT.number),
    )
    .where(_OF_ATTEMPT.job_row.is_(None), _ATTEMPT.started_at.is_not(None))
    # A tracked job has no run folder that its script writes to.
    .where(_JOB.tracked_name.is_(None))
)


class EnvironmentStore(base.Store):
    def unread(
        self, cluster: str, ended_since: datetime.datetime, limit: int
    ) -> list[jobs.UnreadEnvironment]:
        """Return started attempts whose environment is not stored, those of newer jobs first.

        Only attempts of jobs that are not settled, or that ended since this time.
        """
        rows = sa.union(
            sa.select(_JOB.row).where(_JOB.settled.is_(False)),
            sa.select(_JOB.row).where(_JOB.ended_at >= ended_since),
        )
        statement = _SELECT_UNREAD.where(_SUBMISSION.cluster == cluster, _JOB.row.in_(rows))
        statement = statement.order_by(_JOB.row.desc(), _ATTEMPT.number.desc()).limit(limit)
        return self._records(jobs.UnreadEnvironment, statement)

    def put(self, stored: Iterable[tuple[int, int, tuple[str, str] | None, str]]) -> None:
        """Store environments of attempts: (row of the job, attempt, environment, placement).

        An environment is its hash and its JSON; None: nothing was recorded. Placement: JSON. An
        attempt that has one keeps it.
        """
        by_attempt = {(row, attempt): rest for row, attempt, *rest in stored}
        documents = {each[0]: each[1] for each, _ in by_attempt.values() if each}
        known = self._numbers(documents)
        new = [
            {"sha256": sha256, "document": document}
            for sha256, document in documents.items()
            if sha256 not in known
        ]
        self._insert_many(ENVIRONMENTS, new)
        known |= self._numbers([each["sha256"] for each in new])
        rows = {row for row, _ in by_attempt}
        old = self._rows(
            sa.select(_OF_ATTEMPT.job_row, _OF_ATTEMPT.attempt).where(
                base.among(_OF_ATTEMPT.job_row, rows)
            )
        )
        for row, attempt in old:
            by_attempt.pop((row, attempt), None)
        self._insert_many(
            ATTEMPT_ENVIRONMENTS,
            [
                {
                    "job_row": row,
                    "attempt": attempt,
                    "environment_id": known[environment[0]] if environment else None,
                    "placement": placement,
                }
                for (row, attempt), (environment, placement) in by_attempt.items()
            ],
        )

    def _numbers(self, hashes: Collection[str]) -> dict[str, int]:
        statement = sa.select(_ENVIRONMENT.sha256, _ENVIRONMENT.id)
        return self._pairs(statement.where(base.among(_ENVIRONMENT.sha256, hashes)))

    def of_job(self, row: int) -> dict[int, tuple[str | None, str]]:
        """Return by attempt the environment (None: nothing was recorded) and placement, as JSON."""
        statement = (
            sa.select(_OF_ATTEMPT.attempt, _ENVIRONMENT.document, _OF_ATTEMPT.placement)
            .select_from(ATTEMPT_ENVIRONMENTS.outerjoin(ENVIRONMENTS))
            .where(_OF_ATTEMPT.job_row == row)
            .order_by(_OF_ATTEMPT.attempt)
        )
        return {attempt: (document, where) for attempt, document, where in self._rows(statement)}

    def of_newest_attempts(self, rows: Collection[int]) -> dict[int, str]:
        """Return by job the hash of its newest attempt's environment, if one is stored."""
        statement = (
            sa.select(_JOB.row, _ENVIRONMENT.sha256)
            .join_from(
                JOBS,
                ATTEMPT_ENVIRONMENTS,
                sa.and_(_OF_ATTEMPT.job_row == _JOB.row, _OF_ATTEMPT.attempt == _JOB.attempt),
            )
            .join(ENVIRONMENTS, _ENVIRONMENT.id == _OF_ATTEMPT.environment_id)
            .where(base.among(_JOB.row, rows))
        )
        return self._pairs(statement)

    def documents(self, hashes: Collection[str]) -> dict[str, str]:
        """Return environments as JSON by their hash."""
        statement = sa.select(_ENVIRONMENT.sha256, _ENVIRONMENT.document)
        return self._pairs(statement.where(base.among(_ENVIRONMENT.sha256, hashes)))
