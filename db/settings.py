"""Facts about this installation, by key. None of these commits."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import orm

from db import models


def get(session: orm.Session, key: str) -> str | None:
    settings = models.Setting.__table__.c
    return session.scalar(sa.select(settings.value).where(settings.key == key))


def put(session: orm.Session, key: str, value: str) -> None:
    session.merge(models.Setting(key=key, value=value))
    session.flush()
