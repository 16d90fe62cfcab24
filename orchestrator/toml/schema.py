"""What a TOML text may hold: a dataclass as its shape, and what differs from it.

Strict and all at once; the nearest right key for an unknown one. Not by pydantic: measured, its
import and one adapter take 0.26 s of CPU time, in each command that reads a configuration.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import functools
import itertools
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from orchestrator.text import escaping
from orchestrator.toml import documents, key_paths, limits

Record = TypeVar("Record")

_SHOWN_CHARACTERS = 80
#: The nearest known key is looked for so often: each search takes a millisecond.
_MOST_ADVICE = 200


def did_you_mean(word: str, known: collections.abc.Iterable[str]) -> str:
    """Return the known word nearest to this one; empty where none is near."""
    names = sorted(known)
    folded = word.lower().replace("-", "_")
    for name in names:
        if name.replace("-", "_") == folded:
            return name
    near = difflib.get_close_matches(folded, names, n=1)
    if near:
        return near[0]
    return next((name for name in names if len(folded) > 2 and name.startswith(folded)), "")


def fields_of(record: Any) -> Mapping[str, Any]:
    """Return the names and types of the fields of a dataclass (the class, no record of it)."""
    return _fields_of(record)


@functools.cache
def _fields_of(record: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(record)
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


def hint_at(record: Any, path: key_paths.KeyPath) -> Any:
    """Return the type at this path below a dataclass; None where the key is not known."""
    return _hint_at(record, path)


@functools.lru_cache(maxsize=512)
def _hint_at(record: Any, path: key_paths.KeyPath) -> Any:
    hint = record
    for part in path:
        hint = bare(hint)
        if dataclasses.is_dataclass(hint):
            hint = fields_of(hint).get(str(part))
        elif typing.get_origin(hint) is collections.abc.Mapping:
            hint = typing.get_args(hint)[1]
        elif typing.get_origin(hint) is tuple:
            hint = typing.get_args(hint)[0]
        else:
            return None
    return hint


def bare(hint: Any) -> Any:
    """Return a type less its `| None`."""
    if types.NoneType not in _parts(hint)[1]:
        return hint
    kinds = [kind for kind in kinds_of(hint) if kind is not types.NoneType]
    return kinds[0] if len(kinds) == 1 else hint


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union; a type that is none stands alone."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def is_words(hint: Any) -> bool:
    """Tell whether the type is a choice of words."""
    return typing.get_origin(bare(hint)) is Literal


def fits(value: object, hint: Any) -> bool:
    """Tell whether a TOML value has this type; strictly: true is no number, "4" neither."""
    origin, arguments = _parts(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, kind) for kind in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        return isinstance(value, list | tuple) and all(fits(item, arguments[0]) for item in value)
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping)
    if dataclasses.is_dataclass(hint):
        return isinstance(value, Mapping)
    if hint is Any:
        return True
    if hint is float:
        return type(value) is float and math.isfinite(value)
    if hint is int:
        return type(value) is int and -(2**63) <= value < 2**63
    return hint is not types.NoneType and type(value) is hint


@functools.cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return what the type was made from, and of what."""
    return typing.get_origin(hint), typing.get_args(hint)


def describe(hint: Any) -> str:
    """Return a type in words: "an integer", "a list of strings"."""
    words = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    kinds = [kind for kind in kinds_of(hint) if kind is not types.NoneType]
    if len(kinds) > 1:
        told = [describe(kind) for kind in kinds if kind is not int or float not in kinds]
        return " or ".join([", ".join(told[:-1]), told[-1]] if told[1:] else told)
    origin, arguments = typing.get_origin(kinds[0]), typing.get_args(kinds[0])
    if origin is Literal:
        quoted = ", ".join(f'"{word}"' for word in arguments)
        return quoted if len(arguments) == 1 else f"one of {quoted}"
    if origin is tuple:
        several = len(kinds_of(arguments[0])) > 1
        if typing.get_origin(arguments[0]) is collections.abc.Mapping:
            return "a list of tables"
        if arguments[0] is int:
            return "a list of integers"
        return f"a list of {'strings and numbers' if several else 'strings'}"
    return words.get(kinds[0], "a table")


def as_toml(value: object, *, most: int | None = _SHOWN_CHARACTERS) -> str:
    """Return a value as TOML writes it, cut to a length that fits a line; None: whole."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = f'"{value}"'
        case list() | tuple():
            text = "[" + ", ".join(as_toml(item, most=most) for item in value) + "]"
        case Mapping():
            text = "a table"
        case _:
            text = str(value)
    text = escaping.visible(text)
    return text if most is None or len(text) <= most else text[: most - 3] + "..."


def unknown_keys(
    document: documents.Document, record: Any
) -> Iterator[tuple[key_paths.KeyPath, str]]:
    """Give the path of each key that the dataclass has not, and what may have been meant."""

    def walk(
        data: Any, hint: Any, at: key_paths.KeyPath
    ) -> Iterator[tuple[key_paths.KeyPath, str]]:
        if not isinstance(data, Mapping):
            return
        hint = bare(hint)
        origin, arguments = _parts(hint)
        if origin is collections.abc.Mapping:
            for key, value in data.items():
                yield from walk(value, arguments[1], (*at, key))
        if not dataclasses.is_dataclass(hint):
            return
        known = fields_of(hint)
        for key, value in data.items():
            if key in known:
                yield from walk(value, known[key], (*at, key))
            else:
                table = isinstance(value, Mapping)
                yield (*at, key), f"unknown {'table' if table else 'key'}. {advice(key, known)}"

    given = itertools.count()

    def advice(key: str, known: Mapping[str, Any]) -> str:
        if next(given) >= _MOST_ADVICE:
            return f"Known here: {', '.join(sorted(known))}."
        tables = {
            name: fields_of(bare(hint))
            for name, hint in fields_of(record).items()
            if dataclasses.is_dataclass(bare(hint))
        }
        homes = [name for name, keys in tables.items() if key in keys and keys != known]
        near = did_you_mean(key, known)
        if homes:
            return f"It belongs to [{homes[0]}]."
        if near:
            return f'Did you mean "{near}"?'
        for name, keys in tables.items():
            if near := did_you_mean(key, keys):
                return f'Did you mean "{near}" in [{name}]?'
        return f"Known here: {', '.join(sorted(known))}."

    yield from walk(document.data, record, ())


def build(
    document: documents.Document, record: type[Record]
) -> tuple[Record, dict[key_paths.KeyPath, str]]:
    """Return the dataclass with the values that have the right type, and a message for each other.

    What has none or a wrong value keeps its default; the record's fields must all have one.
    """
    wrong: dict[key_paths.KeyPath, str] = {}

    def made(value: Any, hint: Any, at: key_paths.KeyPath) -> Any:
        hint = bare(hint)
        if not fits(value, hint):
            wrong[at] = f"must be {describe(hint)} (got {as_toml(value)}){_cure(value, hint)}"
            return None
        if hint is Any:
            return value
        if isinstance(value, list | tuple):
            inner = _parts(hint)[1][0]
            if _parts(inner)[0] is not collections.abc.Mapping:
                return tuple(value)
            return tuple(made(item, inner, (*at, place)) for place, item in enumerate(value))
        if _parts(hint)[0] is collections.abc.Mapping:
            inner = _parts(hint)[1][1]
            table = {key: made(item, inner, (*at, key)) for key, item in value.items()}
            return {key: item for key, item in table.items() if item is not None}
        return record_of(value, hint, at) if dataclasses.is_dataclass(hint) else value

    def record_of(data: Mapping[str, Any], cls: Any, at: key_paths.KeyPath) -> Any:
        hints = fields_of(cls)
        found = {
            key: made(value, hints[key], (*at, key)) for key, value in data.items() if key in hints
        }
        return cls(**{key: value for key, value in found.items() if value is not None})

    return record_of(document.data, record, ()), wrong


def _cure(value: object, hint: Any) -> str:
    kinds = kinds_of(hint)
    if typing.get_origin(hint) is Literal and isinstance(value, str):
        near = did_you_mean(value, typing.get_args(hint))
        return f'. Did you mean "{near}"?' if near else ""
    if type(value) is int and str in kinds:
        return f': write "{value}"'
    if typing.get_origin(hint) is tuple and isinstance(value, str):
        return f': write ["{escaping.visible(value)}"]'
    if isinstance(value, str) and int in kinds and re.fullmatch(r"-?[0-9]+", value):
        return f": write {value}"
    return ""


def from_text(text: str, hint: Any) -> object:
    """Return the value of `--set KEY=TEXT` or of a variable: a TOML value, else the bare text.

    Where only strings may stand, the text is taken as it is (less TOML quotes): `--set
    job.account=4711` means the name and `01:00:00` is no TOML time.
    """
    try:
        value = limits.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, limits.TooComplexError):
        return text
    found = value.get("value")
    only_text = all(
        kind is str or kind is types.NoneType or typing.get_origin(kind) is Literal
        for kind in kinds_of(hint)
    )
    kinds = (str,) if only_text and hint is not None else (str, int, float, bool, list, dict)
    return found if len(value) == 1 and isinstance(found, kinds) else text
