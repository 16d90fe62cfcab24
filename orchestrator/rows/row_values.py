"""Values of rows, and how people read them."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.toml import values

Row = Mapping[str, Any]


#: Numbers in a table are rounded to so many significant digits.
_DIGITS = 5


def fields_of(record: object, names: Iterable[str]) -> dict[str, object]:
    """Return these attributes of a record as a row; all are None if the record is."""
    return {name: None if record is None else getattr(record, name) for name in names}


def row_of(kind: type, record: object, /, **computed: object) -> dict[str, Any]:
    """Return a row with the fields of `kind`, a TypedDict: computed, or attributes of the record.

    All attributes are None if the record is. TypeError for a field that `kind` does not have.
    """
    if unknown := computed.keys() - kind.__annotations__.keys():
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    return {
        name: computed[name]
        if name in computed
        else None
        if record is None
        else getattr(record, name)
        for name in kind.__annotations__
    }


def json_value(value: object) -> object:
    """Return a value as JSON can hold it."""
    match value:
        case None | bool() | int() | str():
            # Most values; the other cases take ten times as long to rule out.
            return value
        case float() if not math.isfinite(value):
            # JSON has no NaN (RFC 8259), and a loss that became NaN must not be lost.
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case datetime.datetime():
            return value.isoformat()
        case list() | tuple():
            return [json_value(item) for item in value]
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        case os.PathLike():
            return os.fspath(value)
    return value


def cell(value: object) -> str:
    """Return a value as text for one table cell."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime.datetime():
            return value.astimezone().isoformat(timespec="seconds")
        case list() | tuple():
            return ",".join(map(str, value))
        case Mapping():
            return ",".join(f"{key}={item}" for key, item in value.items())
    return str(value)


def number(value: float) -> str:
    """Return a number with five significant digits, and all digits before the decimal point."""
    rounded = f"{value:.{_DIGITS}g}"
    return f"{value:.0f}" if "e+" in rounded and abs(value) < 1e15 else rounded


def time_of_day(at: datetime.datetime) -> str:
    """Return the local time as `HH:MM:SS`."""
    return at.astimezone().strftime("%H:%M:%S")


def elapsed(seconds: float | None) -> str:
    """Return `[D-]HH:MM:SS`, as Slurm prints it, or "" for None."""
    return "" if seconds is None else values.elapsed(seconds)
