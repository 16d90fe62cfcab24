"""Column types: what SQLite and PostgreSQL call differently, and a check of each value on reading.

SQLite stores any value in any column, and a damaged file holds anything. Each value is checked
where it is read, so that no other code meets a wrong one.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from typing import Any, Self

import sqlalchemy as sa

from db import errors

#: No clock of ours shows an earlier or later time, and arithmetic with these never overflows.
_FIRST_YEAR, _LAST_YEAR = 1970, 2999
_DIGITS = re.compile(r"\d{1,20}", re.ASCII)
_Reader = Callable[[Any], Any]
_WRONG_VALUE = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)


class Checked(sa.types.TypeDecorator[Any]):
    """A column type that raises DamagedValueError for a value that the column cannot hold.

    NULL is accepted, because an outer join returns it for any column; `db check` looks for it.
    """

    impl: Any = sa.Text
    cache_ok = True
    #: what a value must be, for the error message
    expected: str

    def __init__(self, *, table: str = "", column: str = "") -> None:
        super().__init__()
        self.table, self.column = table, column

    def of_column(self, table: str, column: str) -> Self:
        """Return this type for one column, whose name stands in errors."""
        copy = self.copy()
        copy.table, copy.column = table, column
        return copy

    def reader(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        """Return a function that converts a value of the driver, or raises one of _WRONG_VALUE."""
        raise NotImplementedError

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        read = self.reader(dialect, coltype)

        def process(value: Any) -> Any:
            if value is None:
                return None
            try:
                return read(value)
            except _WRONG_VALUE:
                raise errors.DamagedValueError(
                    self.table, self.column, value, self.expected
                ) from None

        return process


class Text(Checked):
    """Any text. PostgreSQL stores no NUL, so there it becomes the replacement character."""

    cache_ok = True
    expected = "text"

    def bind_processor(self, dialect: sa.Dialect) -> _Reader | None:
        return _without_nul if dialect.name == "postgresql" else None

    def reader(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        return _text


class Word(Text):
    """One of a few words."""

    cache_ok = True

    def __init__(self, *words: str, expected: str = "", table: str = "", column: str = "") -> None:
        super().__init__(table=table, column=column)
        self.words = words
        self.expected = expected or f"one of {', '.join(words)}"

    def reader(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        return {word: word for word in self.words}.__getitem__


class Digits(Text):
    """A whole number that may exceed the integers of a database, as text."""

    cache_ok = True
    expected = "at most 20 digits"

    def reader(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        def read(value: Any) -> str:
            if not _DIGITS.fullmatch(value):
                raise ValueError
            return str(value)

        return read


class Document(Text):
    """A JSON object or, with `kind=list`, a JSON list, as text. `or_empty`: or no text at all."""

    cache_ok = True

    def __init__(
        self, kind: type = dict, *, or_empty: bool = False, table: str = "", column: str = ""
    ) -> None:
        super().__init__(table=table, column=column)
        self.kind, self.or_empty = kind, or_empty
        self.expected = "a JSON list" if kind is list else "a JSON object"

    def reader(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        def read(value: Any) -> str:
            is_good = self.or_empty if value == "" else isinstance(json.loads(value), self.kind)
            if not is_good or not isinstance(value, str):
                raise ValueError
            return value

        return read


class Whole(Checked):
    """A whole number within bounds."""

    impl = sa.Integer
    cache_ok = True

    def __init__(
        self,
        least: int | None = None,
        most: int | None = None,
        *,
        table: str = "",
        column: str = "",
    ) -> None:
        super().__init__(table=table, column=column)
        self.least, self.most = least, most
        bounds = [] if least is None else [f"from {least}"]
        bounds += [] if most is None else [f"to {most}"]
        self.expected = " ".join(["a whole number", *bounds])

    def reader(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        least = -(2**63) if self.least is None else self.least
        most = 2**63 - 1 if self.most is None else self.most

        def read(value: Any) -> int:
            if type(value) is int and least <= value <= most:
                return value
            raise ValueError

        return read


class Large(Whole):
    """A whole number of 64 bits; the INTEGER of PostgreSQL has 32."""

    impl = sa.BigInteger
    cache_ok = True


class Key(Large):
    """A row number of 64 bits. SQLite assigns row numbers only to a column of type INTEGER."""

    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        kind = sa.Integer if dialect.name == "sqlite" else sa.BigInteger
        return dialect.type_descriptor(kind())


class Real(Checked):
    """A number."""

    impl = sa.Double
    cache_ok = True
    expected = "a number"

    def reader(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        return _number


class Flag(Checked):
    """True or false."""

    impl = sa.Boolean
    cache_ok = True
    expected = "true (1) or false (0)"
    # IS FALSE instead of = FALSE, as for a Boolean itself.
    coerce_to_is_types = (type(None), bool)

    def reader(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        return {0: False, 1: True}.__getitem__


class UtcDateTime(Checked):
    """An aware time, stored and returned in UTC. The text of SQLite sorts by time.

    `any_year`: the time was written by another program.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def __init__(self, *, any_year: bool = False, table: str = "", column: str = "") -> None:
        super().__init__(table=table, column=column)
        self.any_year = any_year
        self.expected = "a time" if any_year else f"a time from {_FIRST_YEAR} to {_LAST_YEAR}"

    def process_bind_param(
        self, value: datetime.datetime | None, dialect: sa.Dialect
    ) -> datetime.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a time zone cannot be stored: {value}")
        return value.astimezone(datetime.UTC)

    def reader(self, dialect: sa.Dialect, coltype: object) -> _Reader:
        from_driver = self.impl_instance.result_processor(dialect, coltype)
        first, last = (1, 9999) if self.any_year else (_FIRST_YEAR, _LAST_YEAR)

        def read(value: Any) -> datetime.datetime:
            time: Any = value if from_driver is None else from_driver(value)
            if not first <= time.year <= last:
                raise ValueError
            is_naive = time.tzinfo is None
            utc = time.replace(tzinfo=datetime.UTC) if is_naive else time.astimezone(datetime.UTC)
            assert isinstance(utc, datetime.datetime)
            return utc

        return read


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)


def _without_nul(text: str | None) -> str | None:
    return text.replace("\0", "\ufffd") if text else text
