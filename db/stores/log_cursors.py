"""Log cursors: how far each file of a job has been read."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import dialects, models
from orchestrator import metrics

_CURSORS = models.Base.metadata.tables["log_cursors"]
_CURSOR = _CURSORS.c
_FIELDS = (
    *(_CURSOR.path, _CURSOR.device, _CURSOR.inode),
    *(_CURSOR.offset_bytes, _CURSOR.line, _CURSOR.carry),
)
# Built once: each log with new lines needs these.
_IS_FILE = (_CURSOR.job_row == sa.bindparam("job"), _CURSOR.path == sa.bindparam("file"))
_ID_OF_FILE = sa.select(_CURSOR.id).where(*_IS_FILE)
_OF_FILE = sa.select(_CURSOR.id, *_FIELDS).where(*_IS_FILE).with_for_update()
_ADD = sa.insert(_CURSORS).returning(_CURSOR.id)
_CHANGE = sa.update(_CURSORS).where(_CURSOR.id == sa.bindparam("number"))


class LogCursorStore:
    """The log cursors within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def of(self, row: int) -> list[metrics.LogCursor]:
        """Return the cursors of a job in the order of storing."""
        return self.of_jobs([row]).get(row, [])

    def of_jobs(self, rows: Collection[int]) -> dict[int, list[metrics.LogCursor]]:
        """Return the cursors of many jobs by row."""
        statement = sa.select(_CURSOR.job_row, *_FIELDS).order_by(_CURSOR.id)
        statement = statement.where(_CURSOR.job_row.in_(dialects.each(rows)))
        cursors: dict[int, list[metrics.LogCursor]] = {}
        for row, *fields in self._db.connection().execute(statement):
            cursors.setdefault(row, []).append(_record(*fields))
        return cursors

    def paths(self, rows: Collection[int]) -> dict[int, str]:
        """Return the path of each cursor of these jobs by the cursor's number."""
        statement = sa.select(_CURSOR.id, _CURSOR.path)
        statement = statement.where(_CURSOR.job_row.in_(dialects.each(rows)))
        return dict(self._db.connection().execute(statement).all())

    def move(
        self, row: int, cursor: metrics.LogCursor, *, expect: metrics.LogCursor | None
    ) -> bool:
        """Move a cursor from `expect` (None: never read); False if another reader moved it first.

        Store the metrics read on the way in the same transaction, and only if this returns True.
        Then each is stored exactly once, even if readers run in parallel or crash.
        """
        unread = metrics.LogCursor(path=cursor.path)
        connection = self._db.connection()
        stored = connection.execute(_OF_FILE, {"job": row, "file": cursor.path}).first()
        if (unread if stored is None else _record(*stored[1:])) != (expect or unread):
            return False
        if stored is None:
            self._add(row, cursor)
        else:
            connection.execute(_CHANGE, {"number": stored.id, **_columns(cursor)})
        return True

    def id_of(self, row: int, path: str) -> int:
        """Return the number of a file's cursor; a new file gets a cursor at its start."""
        number = self._db.connection().scalar(_ID_OF_FILE, {"job": row, "file": path})
        return self._add(row, metrics.LogCursor(path=path)) if number is None else number

    def _add(self, row: int, cursor: metrics.LogCursor) -> int:
        values = {"job_row": row, "path": cursor.path, **_columns(cursor)}
        return int(self._db.connection().execute(_ADD, values).scalar_one())


def _record(
    path: str, device: str, inode: str, offset_bytes: int, line: int, carry: str
) -> metrics.LogCursor:
    return metrics.LogCursor(
        path=path,
        device=int(device),
        inode=int(inode),
        offset_bytes=offset_bytes,
        line=line,
        carry=carry,
    )


def _columns(cursor: metrics.LogCursor) -> dict[str, Any]:
    """Return the columns that change when a cursor moves."""
    return {
        "device": str(cursor.device),
        "inode": str(cursor.inode),
        "offset_bytes": cursor.offset_bytes,
        "line": cursor.line,
        "carry": cursor.carry,
        "updated_at": datetime.datetime.now(datetime.UTC),
    }
