"""Log cursors: how far each file of a job has been read."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from db import queries
from db.tables.metrics import LOG_CURSORS
from orchestrator import metrics

_CURSOR = LOG_CURSORS.c
#: Fields in the JSON of the column `carry`.
_READING = ("attempt", "banner", "skipping", "fingerprint")
_SELECT = sa.select(LOG_CURSORS).order_by(_CURSOR.id)


class LogCursorStore(queries.Store):
    """The log cursors within one transaction."""

    def of(self, row: int) -> list[metrics.LogCursor]:
        """Return the cursors of a job in the order of storing."""
        return self.of_jobs([row]).get(row, [])

    def of_jobs(self, rows: Collection[int]) -> dict[int, list[metrics.LogCursor]]:
        """Return the cursors of many jobs by row."""
        cursors: dict[int, list[metrics.LogCursor]] = {}
        for row in self._rows(_SELECT.where(queries.among(_CURSOR.job_row, rows))):
            cursors.setdefault(row.job_row, []).append(_record(row))
        return cursors

    def paths(self, rows: Collection[int]) -> dict[int, str]:
        """Return the path of each cursor of these jobs by the cursor's number."""
        statement = sa.select(_CURSOR.id, _CURSOR.path)
        paths = self._rows(statement.where(queries.among(_CURSOR.job_row, rows)))
        return {number: path for number, path in paths}

    def move(
        self, row: int, cursor: metrics.LogCursor, *, expect: metrics.LogCursor | None
    ) -> bool:
        """Move a cursor from `expect` (None: never read); False if another reader moved it first.

        Store the metrics read on the way in the same transaction, and only if this returns True.
        Then each is stored exactly once, even if readers run in parallel or crash.
        """
        is_file = _CURSOR.job_row == row, _CURSOR.path == cursor.path
        stored = self._connection.execute(_SELECT.where(*is_file).with_for_update()).first()
        unread = metrics.LogCursor(path=cursor.path)
        if (unread if stored is None else _record(stored)) != (expect or unread):
            return False
        if stored is None:
            self._insert(LOG_CURSORS, {"job_row": row, **_columns(cursor)})
        else:
            statement = sa.update(LOG_CURSORS).where(*is_file)
            self._connection.execute(statement.values(_columns(cursor)))
        return True

    def id_of(self, row: int, path: str) -> int:
        """Return the number of a file's cursor; a new file gets a cursor at its start."""
        is_file = _CURSOR.job_row == row, _CURSOR.path == path
        number = self._connection.scalar(sa.select(_CURSOR.id).where(*is_file))
        if number is not None:
            return int(number)
        return self._insert(LOG_CURSORS, {"job_row": row, **_columns(metrics.LogCursor(path=path))})


def _record(row: sa.Row[Any]) -> metrics.LogCursor:
    carry = json.loads(row.carry or "{}")
    return metrics.LogCursor(
        path=row.path,
        device=int(row.device),
        inode=int(row.inode),
        offset_bytes=row.offset_bytes,
        line=row.line,
        matching=carry.get("matching", {}),
        **carry.get("reading", {}),
    )


def _columns(cursor: metrics.LogCursor) -> Mapping[str, Any]:
    reading = {name: getattr(cursor, name) for name in _READING}
    return {
        "path": cursor.path,
        "device": str(cursor.device),
        "inode": str(cursor.inode),
        "offset_bytes": cursor.offset_bytes,
        "line": cursor.line,
        "carry": json.dumps({"reading": reading, "matching": cursor.matching}),
        "updated_at": datetime.datetime.now(datetime.UTC),
    }
