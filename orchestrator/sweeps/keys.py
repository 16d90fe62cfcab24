"""Keys of a job spec as an axis names them: "args.base_lr", "resources.nodes", "gpus"."""

from __future__ import annotations

import collections.abc
import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.specs import arguments, toml_tables
from orchestrator.sweeps import records
from orchestrator.toml import key_paths, schema

_HINTS = schema.fields_of(toml_tables.FILE)
#: The keys of each table; none: any name may stand there.
_TABLES: dict[str, Mapping[str, Any] | None] = {
    name: schema.fields_of(hint) if dataclasses.is_dataclass(hint) else None
    for name, hint in _HINTS.items()
}
_REFUSED = {
    "array": "a sweep makes its arrays itself: leave this out",
    "launch.batch_file": "a batch file cannot be swept: describe the job in the spec",
}


def leaves(
    table: Mapping[str, Any], at: key_paths.KeyPath
) -> Iterator[tuple[tuple[str, ...], key_paths.KeyPath, Any]]:
    """Give the parts, the place and the value of each key, in whichever of TOML's forms.

    `"args.base_lr" = 1`, `args.base_lr = 1` and `args = { base_lr = 1 }` are one.
    """
    for key, value in table.items():
        yield from _descend(split(key), value, (*at, key))


def split(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key."""
    try:
        found, end = key_paths.read_key(key)
    except key_paths.NotTomlError:
        return tuple(key.split("."))
    return found if end == len(key) else tuple(key.split("."))


def _descend(
    parts: tuple[str, ...], value: Any, at: key_paths.KeyPath
) -> Iterator[tuple[tuple[str, ...], key_paths.KeyPath, Any]]:
    length = 3 if parts[:2] == ("environment", "variables") else 2
    if parts == records.GPUS or len(parts) >= length or not isinstance(value, Mapping):
        yield parts, at, value
        return
    for key, inner in value.items():
        yield from _descend((*parts, key), inner, (*at, key))


def resolve(parts: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the one form of a key, and what is wrong with it; empty where it is right."""
    if parts == records.GPUS:
        return parts, ""
    table = parts[0]
    for refused, told in _REFUSED.items():
        if parts[: refused.count(".") + 1] == tuple(refused.split(".")):
            return parts, told
    if table not in _TABLES or len(parts) == 1:
        return parts, _unknown(parts)
    fields = _TABLES[table]
    if fields is None:
        name = ".".join(parts[1:])
        if table == "args":
            return argument(name), ""
        return (table, name), ""
    hint = fields.get(parts[1])
    is_mapping = typing.get_origin(hint) is collections.abc.Mapping
    if hint is None or len(parts) != (3 if is_mapping else 2):
        return parts, _unknown(parts)
    return parts, ""


def argument(name: str) -> tuple[str, ...]:
    """Return the key of a program's argument; two spellings of one flag are one key."""
    return "args", arguments.flag(name).removeprefix("--").replace("-", "_")


def _unknown(parts: tuple[str, ...]) -> str:
    """Say that there is no such key, and which may have been meant."""
    homes = [table for table, fields in _TABLES.items() if fields and parts[-1] in fields]
    known = [f"{table}.{key}" for table, fields in _TABLES.items() for key in fields or ()]
    if homes:
        return f'no key of a spec: did you mean "{homes[0]}.{parts[-1]}"?'
    if near := schema.did_you_mean(".".join(parts), known):
        return f'no key of a spec: did you mean "{near}"?'
    return (
        "no key of a spec: write its table too, such as "
        f'"resources.nodes", or "args.{parts[-1]}" for an argument of the program'
    )
