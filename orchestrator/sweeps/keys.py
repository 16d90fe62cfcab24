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

#: The keys of each table; None: any.
_TABLES: dict[str, Mapping[str, Any] | None] = {
    name: schema.fields_of(hint) if dataclasses.is_dataclass(hint) else None
    for name, hint in schema.fields_of(toml_tables.FILE).items()
}
_REFUSED = {
    ("array",): "a sweep creates its own arrays: remove this",
    ("launch", "batch_file"): "a batch file cannot be swept: describe the job in the spec",
}
_Leaf = tuple[tuple[str, ...], key_paths.KeyPath, Any]


def leaves(table: Mapping[str, Any], at: key_paths.KeyPath) -> Iterator[_Leaf]:
    """Yield key, place in the file and value; `"args.lr" = 1` equals `args = { lr = 1 }`."""
    for key, value in table.items():
        yield from _descend(split(key), value, (*at, key))


def split(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key."""
    try:
        parts, end = key_paths.read_key(key)
    except key_paths.NotTomlError:
        return tuple(key.split("."))
    return parts if end == len(key) else tuple(key.split("."))


def _descend(parts: tuple[str, ...], value: Any, at: key_paths.KeyPath) -> Iterator[_Leaf]:
    length = 3 if parts[:2] == ("environment", "variables") else 2
    if parts == records.GPUS or len(parts) >= length or not isinstance(value, Mapping):
        yield parts, at, value
        return
    for key, inner in value.items():
        yield from _descend((*parts, key), inner, (*at, key))


def resolve(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the canonical form of a key; InvalidError for an unknown one."""
    if parts == records.GPUS:
        return parts
    for refused, message in _REFUSED.items():
        if parts[: len(refused)] == refused:
            raise records.InvalidError(message)
    table, names = parts[0], parts[1:]
    if table not in _TABLES or not names:
        raise _unknown(parts)
    fields = _TABLES[table]
    if fields is None:
        name = ".".join(names)
        return argument(name) if table == "args" else (table, name)
    hint = fields.get(names[0])
    is_mapping = typing.get_origin(hint) is collections.abc.Mapping
    if hint is None or len(parts) != (3 if is_mapping else 2):
        raise _unknown(parts)
    return parts


def argument(name: str) -> tuple[str, ...]:
    """Return the key of a program's argument, the same for all spellings of its flag."""
    return "args", arguments.flag(name).removeprefix("--").replace("-", "_")


def _unknown(parts: tuple[str, ...]) -> records.InvalidError:
    key = parts[-1]
    known = [f"{table}.{name}" for table, fields in _TABLES.items() for name in fields or ()]
    near = next((name for name in known if name.endswith(f".{key}")), "")
    if near := near or schema.did_you_mean(".".join(parts), known):
        return records.InvalidError(f'is not a key of a spec. Did you mean "{near}"?')
    return records.InvalidError(
        'is not a key of a spec: write it with its table, such as "resources.nodes", or '
        f'"args.{key}" for an argument of the program'
    )
