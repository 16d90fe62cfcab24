"""Rows that came as JSON, perhaps from another version: checked against their type. Pure."""

from __future__ import annotations

import datetime
import enum
import functools
import types
import typing
from typing import Any

#: Numbers that the database can store.
_MAX_INTEGER = 2**63
#: Years that can be converted to any time zone.
_YEARS = range(1970, 3000)
_MAX_SHOWN = 60


def row(value: object, kind: type) -> dict[str, Any]:
    """Return the fields of a row that its type has; those that it lacks are None.

    kind: a TypedDict. Raises ValueError if a field has another type.
    """
    if not isinstance(value, dict):
        raise ValueError("a row is not an object")
    fields = {name: value.get(name) for name in _hints(kind)}
    for name, of_field in _hints(kind).items():
        if not _is(fields[name], of_field):
            raise ValueError(f"{name} is {str(fields[name])[:_MAX_SHOWN]!r}")
    return fields


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _is(value: object, kind: Any) -> bool:
    if kind in (str, bool, types.NoneType):
        return type(value) is kind
    if kind is int:
        return type(value) is int and abs(value) < _MAX_INTEGER
    if kind is datetime.datetime:
        return _is_time(value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(_is(value, each) for each in arguments)
    if origin is list:
        return isinstance(value, list) and all(_is(each, arguments[0]) for each in value)
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return value in list(kind)
    if not typing.is_typeddict(kind):
        raise TypeError(f"{kind} cannot be read")
    return isinstance(value, dict) and all(
        _is(value.get(name), of_field) for name, of_field in _hints(kind).items()
    )


def _is_time(value: object) -> bool:
    try:
        time = datetime.datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return time is not None and time.tzinfo is not None and time.year in _YEARS
