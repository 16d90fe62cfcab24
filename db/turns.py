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
