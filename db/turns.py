"""Questions of who looks again and again: they cost little where nothing has changed."""

from __future__ import annotations

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from db import models

_JOBS = models.Job.__table__
_SUBMISSIONS = models.Submission.__table__


def live_versions(session: orm.Session, cluster: str) -> list[tuple[int, int]]:
    """Return row and version of the jobs of which Slurm is expected to say more, oldest first."""
    statement = sa.select(_JOBS.c.row, _JOBS.c.version).join_from(_JOBS, _SUBMISSIONS)
    live = statement.where(_JOBS.c.settled.is_(False), _SUBMISSIONS.c.cluster == cluster)
    return [(row, version) for row, version in session.execute(live.order_by(_JOBS.c.row))]


def next_resend_at(session: orm.Session, after: datetime.datetime) -> datetime.datetime | None:
    """Return the first moment later than `after` at which something is sent again."""
    due = sa.select(sa.func.min(_JOBS.c.resend_at)).where(_JOBS.c.resend_at > after)
    return session.execute(due).scalar()


def settled_after(
    session: orm.Session,
    place: tuple[datetime.datetime, int],
    ended_since: datetime.datetime,
    limit: int,
) -> list[tuple[datetime.datetime, int]]:
    """Return when jobs that are settled were last seen, and their rows, in that order.

    Those behind `place`. `ended_since` narrows the search, by an index.
    """
    job = _JOBS.c
    behind = sa.or_(
        job.observed_at > place[0], sa.and_(job.observed_at == place[0], job.row > place[1])
    )
    statement = (
        sa.select(job.observed_at, job.row)
        .where(job.ended_at >= ended_since, job.settled.is_(True), behind)
        .order_by(job.observed_at, job.row)
        .limit(limit)
    )
    return [(at, row) for at, row in session.execute(statement)]
