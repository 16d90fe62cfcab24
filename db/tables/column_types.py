"""The kinds of columns.

SQLite stores any value in any column, and a damaged file holds anything. Each value is checked
where it is read, and converted to what the records of `orchestrator` hold.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Self

import sqlalchemy as sa

from orchestrator import errors, jobs

#: No clock of ours shows an earlier or later time, and arithmetic with these never overflows.
_YEARS = range(1970, 3000)
_DIGITS = re.compile(r"\d{1,20}", re.ASCII)
#: Slurm stores time limits as 32-bit numbers of minutes.
MAX_SECONDS = 60 * 2**32
_Convert = Callable[[Any], Any]
#: Longest part of a damaged value in a message.
_SHOWN_CHARACTERS = 60
_WRONG_VALUE = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)


class DamagedValueError(errors.DamagedRowError):
    """A stored value is not one that its column can hold; which row has it is not known here."""

    def __init__(self, table: str, column: str, value: object, expected: str) -> None:
        super().__init__(f"{table}: {wrong_value(column, value, expected)}")
        self.table, self.column, self.expected = table, column, expected


def wrong_value(column: str, value: object, expected: str) -> str:
    """Return a message about a value that a column cannot hold."""
    if value is None:
        return f"{column} is missing"
    text = repr(value)
    text = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    if isinstance(value, bytes):
        text = f"{text}, bytes that are not UTF-8 text"
    return f"{column} is {text}, not {expected}"


class CheckedType(sa.types.TypeDecorator[Any]):
    """A column type that raises DamagedValueError for a value that the column cannot hold.

    NULL is accepted, because an outer join returns it for any column; `db check` looks for it.
    """

    impl: Any = sa.Text
    cache_ok = True
    # IS FALSE instead of IS and a bound value, which PostgreSQL refuses.
    coerce_to_is_types = (type(None), bool)

    def __init__(
        self,
        read: _Convert,
        expected: str,
        *,
        impl: sa.types.TypeEngine[Any] | None = None,
        write: _Convert | None = None,
        null: object = None,
    ) -> None:
        """`read` converts a value of the driver, or raises one of _WRONG_VALUE.

        `expected` is what a value must be, for the error. NULL is read as `null`.
        """
        super().__init__()
        self.impl = impl or sa.Text()
        self.read, self.expected, self.write, self._null = read, expected, write, null
        self.table = self.column = ""

    def of_column(self, table: str, column: str) -> Self:
        """Return this type for one column, whose name stands in errors."""
        copy = self.copy()
        copy.table, copy.column = table, column
        return copy

    def bind_processor(self, dialect: sa.Dialect) -> _Convert | None:
        if self.write is None and dialect.name == "sqlite":
            return self.impl_instance.bind_processor(dialect)
        return super().bind_processor(dialect)

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        if self.write is not None:
            value = self.write(value)
        if dialect.name == "postgresql" and isinstance(value, str):
            # PostgreSQL stores no NUL.
            return value.replace("\0", "\ufffd")
        return value

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> _Convert:
        is_time = isinstance(self.impl_instance, sa.DateTime)
        from_driver = self.impl_instance.result_processor(dialect, coltype) if is_time else None
        read = self.read if from_driver is None else lambda value: self.read(from_driver(value))

        def process(value: Any) -> Any:
            if value is None:
                return self._null
            try:
                return read(value)
            except _WRONG_VALUE:
                raise DamagedValueError(self.table, self.column, value, self.expected) from None

        return process


def word(*words: str) -> CheckedType:
    return CheckedType({each: each for each in words}.__getitem__, f"one of {', '.join(words)}")


def whole(
    least: int = -(2**63), most: int = 2**63 - 1, impl: sa.types.TypeEngine[Any] | None = None
) -> CheckedType:
    """Return the type of a column with a whole number within bounds."""

    def read(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise ValueError

    bounds = [f" from {least}"] if least > -(2**63) else []
    bounds += [f" to {most}"] if most < 2**63 - 1 else []
    return CheckedType(read, f"a whole number{''.join(bounds)}", impl=impl or sa.Integer())


def large(least: int = -(2**63), most: int = 2**63 - 1) -> CheckedType:
    """Return the type of a 64-bit number; the INTEGER of PostgreSQL has 32 bits."""
    return whole(least, most, sa.BigInteger())


def parsed(
    kind: type,
    convert: _Convert,
    expected: str,
    *,
    ascii_only: bool = False,
    null: object = None,
    empty: str = "",
) -> CheckedType:
    """Return the type of a column with JSON that is read as Python values.

    `empty` is the JSON that an empty text stands for; "": none.
    """

    def read(text: Any) -> Any:
        value = json.loads(text or empty)
        if type(text) is not str or not isinstance(value, kind):
            raise ValueError
        return convert(value)

    def write(value: Any) -> str:
        return json.dumps(value, default=_json_value, ensure_ascii=ascii_only)

    return CheckedType(read, expected, write=write, null=null)


def _json_value(value: Any) -> object:
    if dataclasses.is_dataclass(value):
        return vars(value)
    # JSON lacks dates and times.
    return dict(value) if isinstance(value, Mapping) else str(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _json_text(value: Any) -> str:
    if not isinstance(json.loads(value), dict):
        raise TypeError
    return _text(value)


def _texts(values: list[Any]) -> tuple[str, ...]:
    return tuple(map(_text, values))


def _variables(values: dict[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in values.items()}


def _arguments(values: dict[str, Any]) -> dict[str, jobs.ArgumentValue]:
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }


def _pairs(values: list[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((_text(first), _text(second)) for first, second in values)


def _alerts(values: list[Any]) -> tuple[jobs.Alert, ...]:
    return tuple(
        jobs.Alert(**{**alert, "since": datetime.datetime.fromisoformat(alert["since"])})
        for alert in values
    )


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)


def _digits(value: Any) -> int:
    if not _DIGITS.fullmatch(value):
        raise ValueError
    return int(value)


def _time(years: range) -> CheckedType:
    """Return the type of an aware time, stored and returned in UTC.

    The text of SQLite sorts by time.
    """

    def read(time: Any) -> datetime.datetime:
        if time.year not in years:
            raise ValueError
        utc = datetime.UTC
        aware = time.replace(tzinfo=utc) if time.tzinfo is None else time.astimezone(utc)
        assert isinstance(aware, datetime.datetime)
        return aware

    def write(time: datetime.datetime) -> datetime.datetime:
        if time.tzinfo is None:
            raise ValueError(f"a time without a time zone cannot be stored: {time}")
        return time.astimezone(datetime.UTC)

    expected = "a time" if years != _YEARS else f"a time from {years[0]} to {years[-1]}"
    return CheckedType(read, expected, impl=sa.DateTime(timezone=True), write=write)


TEXT = CheckedType(_text, "text")
#: A whole number that may exceed the integers of a database.
DIGITS = CheckedType(_digits, "at most 20 digits", write=str)
COUNT, WHOLE, LARGE = whole(0), whole(), large()
#: A row number of 64 bits. SQLite assigns row numbers only to a column of type INTEGER.
LARGE_KEY = whole(1, impl=sa.BigInteger().with_variant(sa.Integer(), "sqlite"))
REAL = CheckedType(_number, "a number", impl=sa.Double())
FLAG = CheckedType({0: False, 1: True}.__getitem__, "true (1) or false (0)", impl=sa.Boolean())
TIME = _time(_YEARS)
#: A time that was written by another program.
FOREIGN_TIME = _time(range(1, 10_000))
STATE = CheckedType({state.value: state for state in jobs.JobState}.__getitem__, "a state of a job")
SCHEDULER = word("slurm", "local")
DOCUMENT = CheckedType(_json_text, "a JSON object")
JSON = parsed(dict, dict, "a JSON object", null={})
CARRY = parsed(dict, dict, "a JSON object", empty="{}")
TEXTS = parsed(list, _texts, "a JSON list of texts")
#: Command lines and environment variables may contain bytes that are not UTF-8.
COMMAND = parsed(list, _texts, "a JSON list of texts", ascii_only=True)
VARIABLES = parsed(dict, _variables, "a JSON object of texts", ascii_only=True)
ARGUMENTS = parsed(dict, _arguments, "a JSON object", null={})
PAIRS = parsed(list, _pairs, "a JSON list of pairs")
ALERTS = parsed(list, _alerts, "a JSON list of alerts", null=())
