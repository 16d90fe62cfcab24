"""Log cursors: how far each file of a job has been read."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from db.stores import base
from db.tables.metrics import LOG_CURSORS
from orchestrator import errors, metrics

_CURSOR = LOG_CURSORS.c
#: Fields in the JSON of the column `carry`.
_READING = ("attempt", "banner", "skipping", "fingerprint")
_SELECT = base.select(LOG_CURSORS, metrics.LogCursor).add_columns(_CURSOR.carry)


class LogCursorStore(base.Store):
    def of(self, row: int) -> list[metrics.LogCursor]:
        """Return the cursors of a job in the order of storing."""
        return self.of_jobs([row]).get(row, [])

    def of_jobs(self, rows: Collection[int]) -> dict[int, list[metrics.LogCursor]]:
        statement = _SELECT.add_columns(_CURSOR.job_row).order_by(_CURSOR.id)
        cursors: dict[int, list[metrics.LogCursor]] = {}
        for row in self._rows(statement.where(base.among(_CURSOR.job_row, rows))):
            fields = row._asdict()
            cursors.setdefault(fields.pop("job_row"), []).append(_record(fields))
        return cursors

    def paths(self, rows: Collection[int]) -> dict[int, str]:
        """Return the path of each cursor of these jobs by the cursor's number."""
        statement = sa.select(_CURSOR.id, _CURSOR.path)
        return self._pairs(statement.where(base.among(_CURSOR.job_row, rows)))

    def move(
        self, row: int, cursor: metrics.LogCursor, *, expect: metrics.LogCursor | None
    ) -> bool:
        """Move a cursor from `expect` (None: never read); False if another reader moved it first.

        Store the metrics read on the way in the same transaction, and only if this returns True.
        Then each is stored exactly once, even if readers run in parallel or crash.
        """
        is_file = _CURSOR.job_row == row, _CURSOR.path == cursor.path
        stored = self._connection.execute(_SELECT.where(*is_file)).first()
        unread = metrics.LogCursor(path=cursor.path)
        if (unread if stored is None else _record(stored._asdict())) != (expect or unread):
            return False
        if stored is None:
            self._insert(LOG_CURSORS, {"job_row": row, **_columns(cursor)})
        else:
            self._update(LOG_CURSORS, _columns(cursor), *is_file)
        return True

    def id_of(self, row: int, path: str) -> int:
        """Return the number of a file's cursor; a new file gets a cursor at its start."""
        is_file = _CURSOR.job_row == row, _CURSOR.path == path
        number: int | None = self._connection.scalar(sa.select(_CURSOR.id).where(*is_file))
        if number is None:
            self.move(row, metrics.LogCursor(path=path), expect=None)
            return self.id_of(row, path)
        return number


def _record(fields: dict[str, Any]) -> metrics.LogCursor:
    carry = fields.pop("carry")
    try:
        matching, reading = dict(carry.get("matching", {})), carry.get("reading", {})
        return metrics.LogCursor(**fields, matching=matching, **reading)
    except (AttributeError, TypeError, ValueError) as error:
        raise errors.DatabaseError(
            f"the stored position in {fields['path']} is not readable: `orchestrator db check` "
            "shows details"
        ) from error


def _columns(cursor: metrics.LogCursor) -> dict[str, Any]:
    columns = dict(vars(cursor))
    matching, reading = columns.pop("matching"), {name: columns.pop(name) for name in _READING}
    carry = {"reading": reading, "matching": matching}
    return {**columns, "carry": carry, "updated_at": datetime.datetime.now(datetime.UTC)}
