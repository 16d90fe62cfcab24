"""Numbers and the places in the files they were read from. None of these commits."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy import orm

from db import dialects, models, queries


def log_cursors(session: orm.Session, rows: Collection[int]) -> list[models.LogCursor]:
    found: list[models.LogCursor] = []
    for portion in queries.portions(rows):
        statement = sa.select(models.LogCursor).where(models.LogCursor.job_row.in_(portion))
        found += session.scalars(statement.order_by(models.LogCursor.id)).all()
    return found


def log_cursor(
    session: orm.Session, row: int, path: str, now: datetime.datetime
) -> models.LogCursor:
    """Return the cursor of one file, at the start of an unknown file when there was none."""
    statement = sa.select(models.LogCursor).where(
        models.LogCursor.job_row == row, models.LogCursor.path == path
    )
    found = session.scalar(statement.with_for_update())
    if found is None:
        found = models.LogCursor(
            job_row=row,
            path=path,
            device="0",
            inode="0",
            offset_bytes=0,
            line=0,
            carry="",
            updated_at=now,
        )
        session.add(found)
        session.flush()
    return found


class Numbers(NamedTuple):
    """The numbers of one line of a file, in the columns' own types."""

    #: "": no file is known
    path: str
    source: str
    attempt: int
    rank: int | None
    world_size: int | None
    #: name and unit of each number
    names: tuple[tuple[str, str], ...]
    step: int | None
    epoch: int | None
    time: datetime.datetime | None
    line: int | None
    #: in the order of the names; NaN is stored as NULL
    values: tuple[float, ...]


def add_numbers(
    session: orm.Session, row: int, found: Sequence[Numbers], now: datetime.datetime
) -> int:
    """Store the numbers of a job's lines in their order; return how many numbers that were.

    Nothing here looks for lines that are stored already: who reads a file moves its cursor in the
    same transaction.
    """
    sets = _Sets(session, row, now)
    stored = 0
    parameters: list[Any] = []
    # Alike lines have one object for their names, so that these need not be compared.
    known: dict[tuple[int, str, str, int, int | None, int | None], list[int]] = {}
    for path, source, attempt, rank, world_size, names, step, epoch, time, line, values in found:
        about = (id(names), path, source, attempt, rank, world_size)
        ids = known.get(about)
        if ids is None:
            ids = known[about] = [
                sets.number((path, attempt, source, rank, world_size, names[begin:end]))
                for begin, end in _parts(len(names))
            ]
        shown = None if time is None else _stored_time(time)
        stored += len(values)
        begin = 0
        for number in ids:
            part = values[begin : begin + models.METRIC_PLACES]
            parameters += (number, step, epoch, shown, line, *part, *_NONE[len(part) :])
            begin += models.METRIC_PLACES
    dialects.insert(session, "metric_lines", _LINE_COLUMNS, parameters)
    return stored


def _parts(count: int) -> list[tuple[int, int]]:
    places = models.METRIC_PLACES
    return [(begin, begin + places) for begin in range(0, count, places)]


_SetKey: TypeAlias = tuple[str, int, str, int | None, int | None, tuple[tuple[str, str], ...]]
_NONE = (None,) * models.METRIC_PLACES
_LINE_COLUMNS = (
    *("set_id", "step", "epoch", "time", "line"),
    *(f"value{place}" for place in range(models.METRIC_PLACES)),
)
_SETS = models.Base.metadata.tables["metric_sets"]
_SET_COLUMNS = (
    *("job_row", "log_id", "attempt", "source", "rank", "world_size"),
    *(f"{what}{place}" for place in range(models.METRIC_PLACES) for what in ("name", "unit")),
)


class _Sets:
    """The sets of a job and their numbers; what is missing is made."""

    def __init__(self, session: orm.Session, row: int, now: datetime.datetime) -> None:
        self._session, self._row, self._now = session, row, now
        self._numbers: dict[_SetKey, int] | None = None
        #: by path
        self._logs: dict[str, int] = {}

    def number(self, key: _SetKey) -> int:
        if self._numbers is None:
            self._numbers = self._stored()
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = self._made(key)
        return found

    def _stored(self) -> dict[_SetKey, int]:
        # Columns and no records: 1,024 ranks with 100 names have 100,000 sets.
        table = _SETS.c
        columns = [table[name] for name in _SET_COLUMNS if name not in ("job_row", "log_id")]
        statement = (
            sa.select(table.id, models.LogCursor.path, *columns)
            .outerjoin(models.LogCursor, models.LogCursor.id == table.log_id)
            .where(table.job_row == self._row)
        )
        found = {}
        for number, path, attempt, source, rank, world_size, *told in self._session.execute(
            statement
        ):
            pairs = zip(told[::2], told[1::2], strict=True)
            names = tuple([(name, unit) for name, unit in pairs if name is not None])
            found[path or "", attempt, source, rank, world_size, names] = number
        return found

    def _made(self, key: _SetKey) -> int:
        path, attempt, source, rank, world_size, names = key
        if path and path not in self._logs:
            self._logs[path] = log_cursor(self._session, self._row, path, self._now).id
        told: list[str | None] = [part for name in names for part in name]
        told += [None] * (2 * models.METRIC_PLACES - len(told))
        about = (self._row, self._logs.get(path), attempt, source, rank, world_size, *told)
        made = self._session.execute(
            sa.insert(_SETS).returning(_SETS.c.id), dict(zip(_SET_COLUMNS, about, strict=True))
        )
        return int(made.scalar_one())


def _stored_time(at: datetime.datetime) -> str:
    # As SQLAlchemy writes a DateTime into SQLite, and in UTC as all sessions with PostgreSQL are;
    # strftime("%Y") gives the year 999 three digits.
    naive = at.astimezone(datetime.UTC).replace(tzinfo=None)
    return naive.isoformat(sep=" ", timespec="microseconds")
