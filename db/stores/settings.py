"""Facts about this installation, by key."""

from __future__ import annotations

import sqlalchemy as sa

from db import models, statements
from orchestrator import errors


class SettingStore:
    """The settings within one transaction."""

    def __init__(self, db: statements.Session) -> None:
        self._db = db

    def get(self, key: str) -> str | None:
        setting = models.Setting.__table__.c
        return self._db.scalar(sa.select(setting.value).where(setting.key == key))

    def put(self, key: str, value: str) -> None:
        self._db.merge(models.Setting(key=key, value=value))
        self._db.flush()

    def installation_id(self) -> str:
        """Return the four characters [a-z0-9] that begin every token of this database."""
        value = self.get("installation_id")
        if value is None:
            raise errors.DatabaseError("The database lacks its installation ID; restore a backup.")
        return value
