"""Dependencies of submissions on jobs and sweeps of ours."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import orm

from db import models, queries, service_tables
from orchestrator import jobs
from orchestrator.jobs import dependency

_DEPENDENCY = service_tables.Dependency
_DEPENDENCIES = _DEPENDENCY.__table__
_JOBS = models.Job.__table__
_SIBLINGS = _JOBS.alias()
#: Run by each submission: to build it takes ten times as long as to run it.
_OF_SUBMISSION: sa.Select[Any] = (
    sa.select(_DEPENDENCIES)
    .where(
        _DEPENDENCIES.c.job_row.in_(
            sa.select(_SIBLINGS.c.row)
            .join(_JOBS, _JOBS.c.submission_id == _SIBLINGS.c.submission_id)
            .where(_JOBS.c.row == sa.bindparam("job_row"))
        )
    )
    .order_by(_DEPENDENCIES.c.id)
)


class DependencyStore:
    """Dependencies within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def add(self, job_row: int, dependencies: Sequence[dependency.Dependency]) -> None:
        """Store the dependencies of the submission with this first job."""
        rows = [{"job_row": job_row, **vars(each)} for each in dependencies]
        self._db.add_all([_DEPENDENCY(**row) for row in rows])
        self._db.flush()

    def of(self, job_row: int) -> list[dependency.StoredDependency]:
        """Return the dependencies of the submission of this job."""
        rows = self._db.connection().execute(_OF_SUBMISSION, {"job_row": job_row})
        return [
            dependency.StoredDependency(
                id=row.id,
                dependency=dependency.Dependency(
                    kind=cast("dependency.Kind", row.kind), on_job=row.on_job, on_sweep=row.on_sweep
                ),
                continuation=row.turned_to,
            )
            for row in rows
        ]

    def dependents(self) -> list[int]:
        """Return jobs that are pending in Slurm and whose dependency may have to be changed.

        Those that depend on a job which ended or is continued by another one, and those that Slurm
        says can never start, also because of the baseline of their sweep. One job of a submission,
        oldest first.
        """
        job, other, point = models.Job, orm.aliased(models.Job), models.SweepPoint
        # Slurm handles a job that completed by itself, unless the dependency is afternotok.
        matters = sa.or_(
            sa.and_(
                other.state.in_(jobs.TERMINAL),
                sa.or_(other.state != "COMPLETED", _DEPENDENCY.kind == "afternotok"),
            ),
            other.continues.is_not(None),
        )
        on_job = sa.exists().where(other.row == _DEPENDENCY.on_job, matters)
        on_point = sa.exists().where(
            point.sweep_id == _DEPENDENCY.on_sweep, other.row == point.job_row, matters
        )
        pending = (job.settled.is_(False), job.state == "PENDING", job.job_id.is_not(None))
        never = job.reason == dependency.NEVER_SATISFIED
        of_ours = (
            sa.select(_DEPENDENCY.job_row)
            .join(job, job.row == _DEPENDENCY.job_row)
            .where(*pending, sa.or_(on_job, on_point, never))
        )
        in_sweeps = (
            sa.select(sa.func.min(job.row))
            .join(point, point.job_row == job.row)
            .where(*pending, never)
            .group_by(job.submission_id)
        )
        return sorted({*self._db.scalars(of_ours), *self._db.scalars(in_sweeps)})

    def set_continuation(self, number: int, job_row: int) -> None:
        """Store that in Slurm this dependency is now one on this continuation job."""
        statement = sa.update(_DEPENDENCY).where(_DEPENDENCY.id == number)
        self._db.execute(statement.values(turned_to=job_row))

    def may_be_recovered(self, job_rows: Collection[int]) -> set[int]:
        """Return those of the ended jobs that a recovery rule continues, or may still continue."""
        recovery, job = service_tables.Recovery, models.Job
        planned = (
            sa.select(recovery.job_row)
            .join(job, job.row == recovery.job_row)
            .where(
                queries.among(recovery.job_row, job_rows),
                recovery.state == "planned",
                recovery.action != "none",
                recovery.attempt == job.attempt,
            )
        )
        undecided = sa.select(job.row).where(
            queries.among(job.row, job_rows), job.recovers.is_(True), job.state != "COMPLETED"
        )
        return {*self._db.scalars(planned), *self._db.scalars(undecided)}

    def array_sizes(self, tokens: Collection[str]) -> dict[str, int]:
        """Return how many jobs each of these submissions has, by token."""
        job, submission = models.Job, models.Submission
        statement = (
            sa.select(submission.token, sa.func.count())
            .join(job, job.submission_id == submission.id)
            .where(queries.among(submission.token, tokens))
            .group_by(submission.token)
        )
        return {token: count for token, count in self._db.execute(statement)}
