"""What jobs wait for, by our own rows. None of these commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import models, queries, service_tables

#: Slurm's reason of a job that can never start, as things are.
IN_VAIN = "DependencyNeverSatisfied"
_DEPENDENCY = service_tables.Dependency
_DEPENDENCIES = _DEPENDENCY.__table__
_JOBS = models.Job.__table__
_SIBLINGS = _JOBS.alias()
#: Each submission asks it: to build it takes ten times as long as to run it.
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


def add(session: orm.Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store dependencies by their columns."""
    session.add_all([_DEPENDENCY(**row) for row in rows])
    session.flush()


def of_submission(session: orm.Session, job_row: int) -> Sequence[sa.Row[Any]]:
    """Return what the submission of this job waits for: it stands with its first job."""
    return session.connection().execute(_OF_SUBMISSION, {"job_row": job_row}).all()


def dependents(session: orm.Session, states: Collection[str]) -> list[int]:
    """Return the jobs that wait in Slurm for one that has ended, or goes on; oldest first.

    And those that Slurm says wait in vain, also behind the first points of their sweep: one of a
    submission.
    """
    job, other, point = models.Job, orm.aliased(models.Job), models.SweepPoint
    # A good end is nobody's news but of afternotok; all else Slurm does by itself.
    is_news = sa.or_(
        sa.and_(
            other.state.in_(states),
            sa.or_(other.state != "COMPLETED", _DEPENDENCY.kind == "afternotok"),
        ),
        other.continues.is_not(None),
    )
    on_job = sa.exists().where(other.row == _DEPENDENCY.on_job, is_news)
    on_point = sa.exists().where(
        point.sweep_id == _DEPENDENCY.on_sweep, other.row == point.job_row, is_news
    )
    waits = (job.settled.is_(False), job.state == "PENDING", job.job_id.is_not(None))
    in_vain = job.reason == IN_VAIN
    behind_others = (
        sa.select(_DEPENDENCY.job_row)
        .join(job, job.row == _DEPENDENCY.job_row)
        .where(*waits, sa.or_(on_job, on_point, in_vain))
    )
    in_sweeps = (
        sa.select(sa.func.min(job.row))
        .join(point, point.job_row == job.row)
        .where(*waits, in_vain)
        .group_by(job.submission_id)
    )
    return sorted({*session.scalars(behind_others), *session.scalars(in_sweeps)})


def to_be_recovered(session: orm.Session, job_rows: Collection[int]) -> set[int]:
    """Return those of the ended jobs from which a recovery rule goes on, or may do so yet."""
    one, job = service_tables.Recovery, models.Job
    planned = (
        sa.select(one.job_row)
        .join(job, job.row == one.job_row)
        .where(
            queries.among(one.job_row, job_rows),
            one.state == "planned",
            one.action != "none",
            one.attempt == job.attempt,
        )
    )
    undecided = sa.select(job.row).where(
        queries.among(job.row, job_rows), job.recovers.is_(True), job.state != "COMPLETED"
    )
    return {*session.scalars(planned), *session.scalars(undecided)}


def sizes(session: orm.Session, tokens: Collection[str]) -> dict[str, int]:
    """Return how many jobs each of these submissions has, by token."""
    job, submission = models.Job, models.Submission
    statement = (
        sa.select(submission.token, sa.func.count())
        .join(job, job.submission_id == submission.id)
        .where(queries.among(submission.token, tokens))
        .group_by(submission.token)
    )
    return {token: count for token, count in session.execute(statement)}


def turn(session: orm.Session, ids: Collection[int], to: int) -> None:
    """Store that Slurm was told to wait for this job in these dependencies."""
    statement = sa.update(_DEPENDENCY).where(queries.among(_DEPENDENCY.id, ids))
    session.execute(statement.values(turned_to=to))
