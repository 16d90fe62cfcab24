"""Dataclasses as schemas of TOML: strict types, all problems at once, the nearest known key.

Not pydantic: its import and one adapter take 0.26 s of CPU time in each command. Not msgspec, which
reports only the first problem, nor cattrs, whose errors would have to be translated: neither is
shorter with these messages.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import functools
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from orchestrator.text import escaping
from orchestrator.toml import documents, key_paths, values
from orchestrator.toml.key_paths import KeyPath

Record = TypeVar("Record")

_SHOWN_CHARACTERS = 80
#: For so many unknown keys the nearest known key is searched: each search takes a millisecond.
_MAX_SUGGESTIONS = 200


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the nearest known word; "" if none is near."""
    names = sorted(known)
    folded = word.lower().replace("-", "_")
    for name in names:
        if name.replace("-", "_") == folded:
            return name
    near = difflib.get_close_matches(folded, names, n=1)
    near += [name for name in names if len(folded) > 2 and name.startswith(folded)]
    return near[0] if near else ""


def advice(word: str, known: Iterable[str]) -> str:
    """Return the nearest known word as a question, or all known words."""
    if near := did_you_mean(word, known):
        return f'Did you mean "{near}"?'
    return f"Known: {', '.join(sorted(known)) or 'none'}."


def fields_of(record: Any) -> Mapping[str, Any]:
    """Return the names and types of the fields of a dataclass (the class itself)."""
    return _fields_of(record)


@functools.cache
def _fields_of(record: type[Any]) -> Mapping[str, Any]:
    hints = typing.get_type_hints(record)
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


def hint_at(record: Any, path: KeyPath) -> Any:
    """Return the type at this path below a dataclass; None if the key is not known."""
    hint = record
    for part in path:
        hint = bare(hint)
        origin = typing.get_origin(hint)
        if dataclasses.is_dataclass(hint):
            hint = fields_of(hint).get(str(part))
        elif origin in (tuple, collections.abc.Mapping):
            hint = typing.get_args(hint)[0 if origin is tuple else 1]
        else:
            return None
    return hint


@functools.cache
def bare(hint: Any) -> Any:
    """Return a type without its `| None`."""
    kinds = [kind for kind in kinds_of(hint) if kind is not types.NoneType]
    return kinds[0] if len(kinds) == 1 else hint


@functools.cache
def kinds_of(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union; any other type alone."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def choices(hint: Any) -> tuple[str, ...]:
    """Return the words of a type that is a choice, or a choice beside other types."""
    literals = (kind for kind in kinds_of(hint) if typing.get_origin(kind) is Literal)
    return tuple(word for kind in literals for word in typing.get_args(kind))


def is_choice(hint: Any) -> bool:
    return typing.get_origin(bare(hint)) is Literal


def fits(value: object, hint: Any) -> bool:
    """Return whether a TOML value has this type; `true` and "4" are not integers."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, kind) for kind in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is tuple:
        return isinstance(value, list | tuple) and all(fits(item, arguments[0]) for item in value)
    if is_table(hint):
        return isinstance(value, Mapping)
    if hint is float:
        return type(value) is float and math.isfinite(value)
    if hint is int:
        return type(value) is int and -(2**63) <= value < 2**63
    if _is_text(hint):
        return type(value) is str
    return hint is Any or (hint is not types.NoneType and type(value) is hint)


def _is_text(hint: Any) -> bool:
    """Return whether a type is str, or one of its subclasses, which tell what the text names."""
    return isinstance(hint, type) and issubclass(hint, str)


def is_table(hint: Any) -> bool:
    return typing.get_origin(hint) is collections.abc.Mapping or dataclasses.is_dataclass(hint)


def describe(hint: Any) -> str:
    """Return a type in words: "an integer", "a list of strings"."""
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    kinds = [kind for kind in kinds_of(hint) if kind is not types.NoneType]
    if len(kinds) > 1:
        words = [describe(kind) for kind in kinds if kind is not int or float not in kinds]
        return ", ".join(words[:-1]) + " or " + words[-1] if words[1:] else words[0]
    origin, arguments = typing.get_origin(kinds[0]), typing.get_args(kinds[0])
    if origin is Literal:
        quoted = ", ".join(f'"{word}"' for word in arguments)
        return quoted if len(arguments) == 1 else f"one of {quoted}"
    if origin is not tuple:
        other = "the name of a plugin" if _is_text(kinds[0]) else "a table"
        return names.get(kinds[0], other)
    items = {int: "integers", str: "strings", collections.abc.Mapping: "tables", tuple: "lists"}
    item = typing.get_origin(arguments[0]) or arguments[0]
    if item is Literal:
        return f"a list of {describe(arguments[0]).removeprefix('one of ')}"
    return f"a list of {items.get(item, 'strings and numbers')}"


def as_toml(value: object, *, max_characters: int | None = _SHOWN_CHARACTERS) -> str:
    """Return a value as TOML writes it, cut to `max_characters`, for a message."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = f'"{value}"'
        case list() | tuple():
            items = (as_toml(item, max_characters=max_characters) for item in value)
            text = "[" + ", ".join(items) + "]"
        case Mapping():
            text = "a table"
        case _:
            text = str(value)
    text = escaping.visible(text)
    if max_characters is None or len(text) <= max_characters:
        return text
    return text[: max_characters - 3] + "..."


def unquoted(text: str) -> str:
    """Return text for a message without quotes, cut like as_toml()."""
    return as_toml(text)[1:-1]


def value_error(key: str, value: object) -> str:
    """Return "must be ... (got ...)" if a number or text is no valid value of the key; else ""."""
    error = ""
    if type(value) is int:
        error = values.range_error(key, value)
    elif isinstance(value, str):
        error = values.form_error(key, value)
    return f"{error} (got {as_toml(value)})" if error else ""


def value_errors(record: Any) -> Iterator[tuple[KeyPath, str]]:
    """Yield path and error of each invalid number and text in the fields of a dataclass."""
    for name in fields_of(type(record)):
        value = getattr(record, name)
        if error := value_error(name, value):
            yield (name,), error
        for index, item in enumerate(value if isinstance(value, tuple) else ()):
            if error := value_error(name, item):
                yield (name, index), error


def unknown_keys(document: documents.Document, record: Any) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path of each key that the dataclass does not have, and a suggestion."""
    unknown = _unknown_keys(document.data, record, ())
    for number, (path, value, known) in enumerate(unknown):
        kind = "table" if isinstance(value, Mapping) else "key"
        advice = _suggestion(str(path[-1]), known, record) if number < _MAX_SUGGESTIONS else ""
        advice = advice or f"Known here: {', '.join(sorted(known))}."
        yield path, f"unknown {kind}. {advice}"


def _unknown_keys(
    data: Any, hint: Any, at: KeyPath
) -> Iterator[tuple[KeyPath, Any, Mapping[str, Any]]]:
    """Yield path and value of each unknown key, and the known keys beside it."""
    hint = bare(hint)
    is_mapping = typing.get_origin(hint) is collections.abc.Mapping
    if not isinstance(data, Mapping) or not (is_mapping or dataclasses.is_dataclass(hint)):
        return
    known = dict.fromkeys(data, typing.get_args(hint)[1]) if is_mapping else fields_of(hint)
    for key, value in data.items():
        if key in known:
            yield from _unknown_keys(value, known[key], (*at, key))
        else:
            yield (*at, key), value, known


def _suggestion(key: str, known: Mapping[str, Any], record: Any) -> str:
    tables = {
        name: fields_of(bare(hint))
        for name, hint in fields_of(record).items()
        if dataclasses.is_dataclass(bare(hint))
    }
    for name, keys in tables.items():
        if key in keys and keys != known:
            return f"It belongs to [{name}]."
    for where, keys in (("", known), *((f" in [{name}]", keys) for name, keys in tables.items())):
        if near := did_you_mean(key, keys):
            return f'Did you mean "{near}"{where}?'
    return ""


def build(document: documents.Document, record: type[Record]) -> tuple[Record, dict[KeyPath, str]]:
    """Return the dataclass, and a message for each unknown key and each value of a wrong type.

    Keys without a value, or with a wrong one, keep their default: every field needs one.
    """
    problems = dict(unknown_keys(document, record))

    def convert(value: Any, hint: Any, at: KeyPath) -> Any:
        hint = bare(hint)
        if not fits(value, hint):
            got = as_toml(value)
            problems[at] = f"must be {describe(hint)} (got {got}){_correction(value, hint)}"
            return None
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if dataclasses.is_dataclass(hint):
            return hint(**convert_items(value, fields_of(hint), at))  # type: ignore[operator]
        if origin is collections.abc.Mapping:
            return convert_items(value, dict.fromkeys(value, arguments[1]), at)
        if origin is tuple:
            return tuple(convert(item, arguments[0], (*at, n)) for n, item in enumerate(value))
        return tuple(value) if isinstance(value, list) and hint is not Any else value

    def convert_items(
        data: Mapping[str, Any], hints: Mapping[str, Any], at: KeyPath
    ) -> dict[str, Any]:
        items = {key: convert(data[key], hints[key], (*at, key)) for key in data if key in hints}
        return {key: value for key, value in items.items() if value is not None}

    return convert(document.data, record, ()), problems


def _correction(value: object, hint: Any) -> str:
    if typing.get_origin(hint) is Literal and isinstance(value, str):
        near = did_you_mean(value, typing.get_args(hint))
        return f'. Did you mean "{near}"?' if near else ""
    if type(value) is int and str in kinds_of(hint):
        return f': write "{value}"'
    if typing.get_origin(hint) is tuple and isinstance(value, str):
        return f': write ["{escaping.visible(value)}"]'
    if isinstance(value, str) and int in kinds_of(hint) and re.fullmatch(r"-?[0-9]+", value):
        return f": write {value}"
    return ""


def from_text(text: str, hint: Any) -> object:
    """Return the value of `--set KEY=TEXT` or of a variable: a TOML value, else the text itself.

    For keys that accept only strings, TEXT is the value (without TOML quotes): `--set
    job.account=4711` is a name and `01:00:00` is no TOML time.
    """
    try:
        data, _ = key_paths.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, key_paths.NotTomlError):
        return text
    only_text = hint is not None and all(
        _is_text(kind) or kind is types.NoneType or typing.get_origin(kind) is Literal
        for kind in kinds_of(hint)
    )
    kinds = (str,) if only_text else (str, int, float, bool, list, dict)
    return data["value"] if len(data) == 1 and isinstance(data["value"], kinds) else text
