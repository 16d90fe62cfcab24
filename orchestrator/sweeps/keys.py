"""Keys of a job spec as an axis names them: "args.base_lr", "resources.nodes", "gpus"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.specs import arguments, toml_tables
from orchestrator.sweeps import records
from orchestrator.toml import documents, key_paths, schema

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
    if parts[0] == "args" and len(parts) > 1:
        return argument(".".join(parts[1:]))
    leaf = documents.with_value(documents.empty(""), parts, "", "")
    for _, message in schema.unknown_keys(leaf, toml_tables.FILE):
        advice = f'An argument of the program is "args.{parts[-1]}".'
        raise records.InvalidError(f"{message} {advice}")
    hint = schema.bare(schema.hint_at(toml_tables.FILE, parts))
    if hint is None or schema.is_table(hint):
        raise records.InvalidError("is not a key that has a value")
    return parts


def argument(name: str) -> tuple[str, ...]:
    """Return the key of a program's argument, the same for all spellings of its flag."""
    return "args", arguments.flag(name).removeprefix("--").replace("-", "_")
