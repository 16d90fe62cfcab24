"""Facts about this installation, by key."""

from __future__ import annotations

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import SETTINGS
from orchestrator import errors


class SettingStore(base.Store):
    def get(self, key: str) -> str | None:
        return self._connection.scalar(sa.select(SETTINGS.c.value).where(SETTINGS.c.key == key))

    def put(self, key: str, value: str) -> None:
        self._put(SETTINGS, [{"key": key, "value": value}])

    def installation_id(self) -> str:
        """Return the four characters [a-z0-9] that begin every token of this database."""
        value = self.get("installation_id")
        if value is None:
            raise errors.DatabaseError("The database lacks its installation ID; restore a backup.")
        return value
