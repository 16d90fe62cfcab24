"""Dependencies of submissions on jobs and sweeps of ours."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import DEPENDENCIES, JOBS, SUBMISSIONS
from db.tables.service import RECOVERIES
from db.tables.sweeps import SWEEP_POINTS
from orchestrator import jobs
from orchestrator.jobs import dependency

_JOB, _DEPENDENCY, _POINT = JOBS.c, DEPENDENCIES.c, SWEEP_POINTS.c
_SELECT_DEPENDENCIES = base.select(DEPENDENCIES, dependency.StoredDependency).add_columns(
    _DEPENDENCY.kind, _DEPENDENCY.on_job, _DEPENDENCY.on_sweep
)


class DependencyStore(base.Store):
    def add(self, job_row: int, dependencies: Sequence[dependency.Dependency]) -> None:
        """Store the dependencies of the submission with this first job."""
        self._insert_many(
            DEPENDENCIES, [{"job_row": job_row, **vars(each)} for each in dependencies]
        )

    def of(self, job_row: int) -> list[dependency.StoredDependency]:
        """Return the dependencies of the submission of this job."""
        submission = sa.select(_JOB.submission_id).where(_JOB.row == job_row).scalar_subquery()
        siblings = sa.select(_JOB.row).where(_JOB.submission_id == submission)
        statement = _SELECT_DEPENDENCIES.where(_DEPENDENCY.job_row.in_(siblings))
        return [
            dependency.StoredDependency(
                id=row.id,
                dependency=dependency.Dependency(
                    kind=row.kind, on_job=row.on_job, on_sweep=row.on_sweep
                ),
                continuation=row.continuation,
            )
            for row in self._rows(statement.order_by(_DEPENDENCY.id))
        ]

    def dependents(self) -> list[int]:
        """Return jobs that are pending in Slurm and whose dependency may have to be changed.

        Those that depend on a job which ended or is continued by another one, and those that Slurm
        says can never start, also because of the baseline of their sweep. One job of a submission,
        oldest first.
        """
        other = JOBS.alias("other").c
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
            _POINT.sweep_id == _DEPENDENCY.on_sweep, other.row == _POINT.job_row, matters
        )
        pending = (_JOB.settled.is_(False), _JOB.state == "PENDING", _JOB.job_id.is_not(None))
        never = _JOB.reason == dependency.NEVER_SATISFIED
        of_dependencies = (
            sa.select(_DEPENDENCY.job_row)
            .join(JOBS, _JOB.row == _DEPENDENCY.job_row)
            .where(*pending, sa.or_(on_job, on_point, never))
        )
        in_sweeps = (
            sa.select(sa.func.min(_JOB.row))
            .join(SWEEP_POINTS, _POINT.job_row == _JOB.row)
            .where(*pending, never)
            .group_by(_JOB.submission_id)
        )
        return sorted({*self._scalars(of_dependencies), *self._scalars(in_sweeps)})

    def set_continuation(self, number: int, job_row: int) -> None:
        """Store that in Slurm this dependency is now one on this continuation job."""
        self._update(DEPENDENCIES, {"continuation": job_row}, _DEPENDENCY.id == number)

    def may_be_recovered(self, job_rows: Collection[int]) -> set[int]:
        """Return those of the ended jobs that a recovery rule continues, or may still continue."""
        recovery = RECOVERIES.c
        planned = (
            sa.select(recovery.job_row)
            .join(JOBS, _JOB.row == recovery.job_row)
            .where(
                base.among(recovery.job_row, job_rows),
                recovery.state == "planned",
                recovery.action != "none",
                recovery.attempt == _JOB.attempt,
            )
        )
        undecided = sa.select(_JOB.row).where(
            base.among(_JOB.row, job_rows), _JOB.recovers.is_(True), _JOB.state != "COMPLETED"
        )
        return {*self._scalars(planned), *self._scalars(undecided)}

    def array_sizes(self, tokens: Collection[str]) -> dict[str, int]:
        """Return how many jobs each of these submissions has, by token."""
        statement = (
            sa.select(SUBMISSIONS.c.token, sa.func.count())
            .join(JOBS, _JOB.submission_id == SUBMISSIONS.c.id)
            .where(base.among(SUBMISSIONS.c.token, tokens))
            .group_by(SUBMISSIONS.c.token)
        )
        return self._pairs(statement)
