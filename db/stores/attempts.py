"""The starts of jobs, and the resources that each attempt used."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import ATTEMPTS, USED_FIGURES
from orchestrator import jobs

_ATTEMPT, _USED = ATTEMPTS.c, USED_FIGURES.c


class AttemptStore(base.Store):
    """The attempts of jobs within one transaction."""

    def put(self, attempts: Iterable[tuple[int, jobs.Attempt]]) -> None:
        """Store attempts, each with its job's row; one with the same number is replaced."""
        self._put(ATTEMPTS, ({"job_row": row, **vars(attempt)} for row, attempt in attempts))

    def of_job(self, row: int) -> list[jobs.Attempt]:
        """Return the attempts of a job, oldest first."""
        return self.of_jobs([row]).get(row, [])

    def of_jobs(self, rows: Collection[int]) -> dict[int, list[jobs.Attempt]]:
        """Return the attempts of many jobs by row, each job's oldest first."""
        statement = sa.select(ATTEMPTS).where(base.among(_ATTEMPT.job_row, rows))
        attempts: dict[int, list[jobs.Attempt]] = {}
        for row in self._rows(statement.order_by(_ATTEMPT.job_row, _ATTEMPT.number)):
            fields = row._asdict()
            attempts.setdefault(fields.pop("job_row"), []).append(jobs.Attempt(**fields))
        return attempts

    def used_figures(self, row: int, attempt: int) -> str | None:
        """Return what `put_used_figures` stored for an attempt."""
        is_attempt = _USED.job_row == row, _USED.attempt == attempt
        return self._connection.scalar(sa.select(_USED.figures).where(*is_attempt))

    def put_used_figures(self, row: int, attempt: int, figures: str) -> None:
        """Store what an attempt used, as JSON."""
        self._put(USED_FIGURES, [{"job_row": row, "attempt": attempt, "figures": figures}])
