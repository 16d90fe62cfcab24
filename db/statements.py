"""The session of a transaction, for both databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

#: Option of a connection: what its transactions are for.
MODE = "orchestrator_mode"


class Session(orm.Session):
    """A session of the ORM that also runs single inserts and updates."""

    def run(self, statement: sa.Insert | sa.Update, values: Mapping[str, Any]) -> int:
        """Return the key that an insert returns, or how many rows an update changed.

        The values are those of columns and parameters by their names.
        """
        result = self.connection().execute(statement, values)
        # SQLAlchemy adds RETURNING for PostgreSQL by itself, and has fetched the new key then.
        row = result.first() if result.returns_rows else None
        return result.rowcount if row is None else int(row[0])
