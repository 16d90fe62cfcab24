"""The types of columns: what both databases call differently, and what a stored value must be.

SQLite stores any value in any column, and a damaged file holds anything. Each value is looked at
where it is read, so that no other code meets a wrong one.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any, Self

import sqlalchemy as sa

from db import errors

#: No clock of ours shows an earlier or later time, and arithmetic with these never overflows.
_FIRST_YEAR, _LAST_YEAR = 1970, 2999
_Processor = Callable[[Any], Any]


class Checked(sa.types.TypeDecorator[Any]):
    """A column type that refuses to read what it cannot hold: DamagedValueError.

    NULL passes here, because an outer join gives it for any column; `db check` looks for it.
    """

    impl: Any = sa.Text
    cache_ok = True
    #: what a value must be, for the error
    expected: str

    def __init__(self, place: tuple[str, str] | None = None) -> None:
        """`place`: table and column, for the error."""
        super().__init__()
        self.place = place

    def at(self, table: str, column: str) -> Self:
        """Return this type for one column."""
        placed = self.copy()
        placed.place = (table, column)
        return placed

    def damaged(self, value: object) -> errors.DamagedValueError:
        table, column = self.place or ("", "")
        return errors.DamagedValueError(table, column, value, self.expected)


class Words(Checked):
    """Any text: PostgreSQL takes no NUL, so there it becomes the sign for what cannot be shown."""

    cache_ok = True
    expected = "text"

    def bind_processor(self, dialect: sa.Dialect) -> _Processor | None:
        return _without_nul if dialect.name == "postgresql" else None

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Processor:
        damaged = self.damaged

        def process(value: Any) -> Any:
            if type(value) is str or value is None:
                return value
            raise damaged(value)

        return process


class Word(Words):
    """One of a few words; `kind` says what they are, where they are too many for an error."""

    cache_ok = True

    def __init__(
        self, *words: str, kind: str | None = None, place: tuple[str, str] | None = None
    ) -> None:
        super().__init__(place)
        self.words = words
        self.expected = kind or f"one of {', '.join(words)}"

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Processor:
        known, damaged = {None, *self.words}, self.damaged

        def process(value: Any) -> Any:
            # What cannot be hashed is never read.
            if value in known:
                return value
            raise damaged(value)

        return process


class Digits(Words):
    """A whole number that may be larger than a database's integer, as text."""

    cache_ok = True
    expected = "at most 20 digits"

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Processor:
        damaged = self.damaged

        def process(value: Any) -> Any:
            if value is None:
                return value
            if type(value) is str and value.isascii() and value.isdigit() and len(value) <= 20:
                return value
            raise damaged(value)

        return process


class Document(Words):
    """A JSON object, or (`kind=list`) a JSON list, as text; `or_empty`: or no text at all."""

    cache_ok = True

    def __init__(
        self,
        kind: type = dict,
        *,
        or_empty: bool = False,
        place: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(place)
        self.kind, self.or_empty = kind, or_empty
        self.expected = "a JSON list" if kind is list else "a JSON object"

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Processor:
        kind, damaged = self.kind, self.damaged
        # Most labels and settings are this one.
        plain = {None, "[]" if kind is list else "{}", *([""] if self.or_empty else [])}

        def process(value: Any) -> Any:
            if value in plain:
                return value
            try:
                if isinstance(value, str) and isinstance(json.loads(value), kind):
                    return value
            except (ValueError, RecursionError):
                pass
            raise damaged(value)

        return process


class Whole(Checked):
    """A whole number within bounds."""

    impl = sa.Integer
    cache_ok = True

    def __init__(
        self,
        least: int | None = None,
        most: int | None = None,
        place: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(place)
        self.least, self.most = least, most
        bounds = [] if least is None else [f"from {least}"]
        bounds += [] if most is None else [f"to {most}"]
        self.expected = " ".join(["a whole number", *bounds])

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Processor:
        least = -(2**63) if self.least is None else self.least
        most = 2**63 - 1 if self.most is None else self.most
        damaged = self.damaged

        def process(value: Any) -> Any:
            if value is None or (type(value) is int and least <= value <= most):
                return value
            raise damaged(value)

        return process


class Large(Whole):
    """A whole number of 64 bits: PostgreSQL's INTEGER has 32."""

    impl = sa.BigInteger
    cache_ok = True


class Key(Large):
    """The number of a row, of 64 bits: SQLite numbers rows only in a column that is INTEGER."""

    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        kind = sa.Integer if dialect.name == "sqlite" else sa.BigInteger
        return dialect.type_descriptor(kind())


class Real(Checked):
    """A number."""

    impl = sa.Double
    cache_ok = True
    expected = "a number"

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Processor:
        damaged = self.damaged

        def process(value: Any) -> Any:
            if value is None or type(value) is float:
                return value
            if type(value) is int:
                return float(value)
            raise damaged(value)

        return process


class Flag(Checked):
    """True or false."""

    impl = sa.Boolean
    cache_ok = True
    expected = "true (1) or false (0)"
    # IS FALSE and not = FALSE, as of a Boolean itself.
    coerce_to_is_types = (type(None), bool)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Processor:
        damaged = self.damaged

        def process(value: Any) -> Any:
            if value is None:
                return None
            if type(value) in (int, bool) and value in (0, 1):
                return bool(value)
            raise damaged(value)

        return process


class UtcDateTime(Checked):
    """An aware moment: stored in UTC, read back in UTC. SQLite's text sorts by time.

    `any_year`: a program wrote it, and may have meant any.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def __init__(self, any_year: bool = False, place: tuple[str, str] | None = None) -> None:
        super().__init__(place)
        self.any_year = any_year
        self.expected = "a time" if any_year else f"a time from {_FIRST_YEAR} to {_LAST_YEAR}"

    def process_bind_param(
        self, value: datetime.datetime | None, dialect: sa.Dialect
    ) -> datetime.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without zone cannot be stored: {value}")
        return value.astimezone(datetime.UTC)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Processor:
        read = self.impl_instance.result_processor(dialect, coltype)
        damaged, utc = self.damaged, datetime.UTC
        first, last = (1, 9999) if self.any_year else (_FIRST_YEAR, _LAST_YEAR)

        def process(value: Any) -> Any:
            if value is None:
                return None
            try:
                found: Any = value if read is None else read(value)
                if first <= found.year <= last:
                    naive = found.tzinfo is None
                    return found.replace(tzinfo=utc) if naive else found.astimezone(utc)
            except (AttributeError, OverflowError, TypeError, ValueError):
                pass
            raise damaged(value)

        return process


class BareTime(Checked):
    """A moment of UTC as it stands, without its zone: for very many."""

    impl = sa.DateTime
    cache_ok = True
    expected = "a time"

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Processor:
        read = self.impl_instance.result_processor(dialect, coltype)
        damaged = self.damaged

        def process(value: Any) -> Any:
            try:
                return value if read is None or value is None else read(value)
            except (TypeError, ValueError):
                raise damaged(value) from None

        return process


def _without_nul(text: str | None) -> str | None:
    return text.replace("\0", "\ufffd") if text else text
