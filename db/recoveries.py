"""What follows failures: decisions, and the chains of jobs that they make. None commits."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import models, queries, service_tables

_JOB = models.Job.__table__.c
_RECOVERY = service_tables.Recovery


def undecided(
    session: orm.Session, clusters: Collection[str] | None, limit: int, after: int = 0
) -> Sequence[sa.Row[Any]]:
    """Return jobs that ended, and of which nothing is decided of the newest attempt; oldest first.

    Those with rows behind `after`. Through an index that holds only the jobs whose end is still to
    be decided about.
    """
    known = sa.select(_RECOVERY.id).where(
        _RECOVERY.job_row == _JOB.row, _RECOVERY.attempt == _JOB.attempt
    )
    statement = queries.select_jobs().where(
        _JOB.recovers.is_(True),
        _JOB.settled.is_(True),
        _JOB.resend_at.is_(None),
        _JOB.row > after,
        ~sa.exists(known),
    )
    if clusters is not None:
        statement = statement.where(models.Submission.__table__.c.cluster.in_(clusters))
    return session.execute(statement.order_by(_JOB.row).limit(limit)).all()


def planned(
    session: orm.Session, now: datetime.datetime, limit: int, after: int = 0
) -> Sequence[_RECOVERY]:
    """Return decisions that are due and not done, oldest first, with numbers behind `after`."""
    statement = sa.select(_RECOVERY).where(_RECOVERY.state == "planned", _RECOVERY.due_at <= now)
    behind = statement.where(_RECOVERY.id > after)
    return session.scalars(behind.order_by(_RECOVERY.id).limit(limit)).all()


def next_due_at(session: orm.Session, after: datetime.datetime) -> datetime.datetime | None:
    """Return when the next decision is due that was not by then."""
    statement = sa.select(sa.func.min(_RECOVERY.due_at))
    return session.scalar(statement.where(_RECOVERY.state == "planned", _RECOVERY.due_at > after))


def add(session: orm.Session, columns: Mapping[str, object]) -> int:
    """Store a decision and return its number; the database refuses a second one of an attempt."""
    row = _RECOVERY(**columns)
    session.add(row)
    session.flush()
    return row.id


def first_told(
    session: orm.Session, job_rows: Collection[int], kind: str
) -> dict[int, datetime.datetime]:
    """Return when the first event of a kind was of the newest attempt of these jobs, by row."""
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
    return {row: at for row, at in session.execute(statement)}


def change(
    session: orm.Session, number: int, columns: Mapping[str, object], *, before: str
) -> bool:
    """Change a decision that is in the state `before`; false where it is not."""
    statement = sa.update(_RECOVERY).where(_RECOVERY.id == number, _RECOVERY.state == before)
    return queries.row_count(session.execute(statement.values(columns))) == 1


def release(session: orm.Session, job_rows: Collection[int]) -> None:
    """Let nothing be decided about the end of these jobs."""
    jobs = models.Job.__table__
    statement = sa.update(jobs).where(queries.among(_JOB.row, job_rows), _JOB.recovers.is_(True))  # type: ignore[arg-type]
    session.execute(statement.values(recovers=None, version=_JOB.version + 1))


def of_jobs(session: orm.Session, job_rows: Collection[int]) -> Sequence[_RECOVERY]:
    """Return the decisions about these jobs, oldest first."""
    statement = sa.select(_RECOVERY).where(queries.among(_RECOVERY.job_row, job_rows))
    return session.scalars(statement.order_by(_RECOVERY.id)).all()


def before(session: orm.Session, row: int) -> list[int]:
    """Return the rows of the jobs that this one goes on with, the first of all first."""
    link = sa.select(_JOB.row, _JOB.continues).where(_JOB.row == row).cte("link", recursive=True)
    job = models.Job.__table__.alias("job")
    # A job is newer than the one that it goes on with, so that this ends whatever is stored.
    earlier = sa.select(job.c.row, job.c.continues).join(
        link, sa.and_(job.c.row == link.c.continues, job.c.row < link.c.row)
    )
    link = link.union_all(earlier)
    found = session.scalars(sa.select(link.c.row).where(link.c.row != row).order_by(link.c.row))
    return list(found)


def after(session: orm.Session, rows: Collection[int]) -> dict[int, int]:
    """Return the rows of the jobs that go on with these, by the row of the one before."""
    # A job is newer than the one that it goes on with, so that following them ends, whatever is
    # stored.
    statement = sa.select(_JOB.continues, _JOB.row).where(
        queries.among(_JOB.continues, rows), _JOB.row > _JOB.continues
    )
    return {before: row for before, row in session.execute(statement.order_by(_JOB.row))}


def furthest_step(session: orm.Session, row: int, attempt: int | None) -> int | None:
    """Return the highest step that a job told, in one attempt or (none) in any."""
    metric_set, line = models.MetricSet, models.MetricLine
    statement = sa.select(sa.func.max(line.step)).join(metric_set, line.set_id == metric_set.id)
    statement = statement.where(metric_set.job_row == row)
    if attempt is not None:
        statement = statement.where(metric_set.attempt == attempt)
    return session.scalar(statement)
