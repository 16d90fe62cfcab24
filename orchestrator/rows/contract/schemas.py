"""JSON Schemas (draft 2020-12) of rows, from their types. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE: Mapping[object, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    # JSON has no NaN (RFC 8259).
    float: {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
    Any: {},
}


@dataclasses.dataclass(frozen=True)
class NamesLike:
    """In Annotated: the field stands for all fields whose names match the expression."""

    expression: str


def of_output(title: str, version: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the schema of the JSON that a command prints: an envelope of one of these kinds."""
    definitions: dict[str, Any] = {}
    envelopes = [
        {
            "type": "object",
            "properties": {
                "schema": {"const": version},
                "kind": {"const": kind},
                "items": {"type": "array", "items": _of(row, definitions)},
            },
            "required": ["schema", "kind", "items"],
            "additionalProperties": False,
        }
        for kind, row in kinds.items()
    ]
    head = {"$schema": _DIALECT, "title": title}
    body = envelopes[0] if len(envelopes) == 1 else {"oneOf": envelopes}
    return {**head, **body, "$defs": definitions}


def field_names(row: type) -> list[str]:
    return list(typing.get_type_hints(row))


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; those of TypedDicts join `definitions`."""
    if kind in _SIMPLE:
        return dict(_SIMPLE[kind])
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        texts = [item for item in kind.__metadata__ if isinstance(item, str)]
        return {**_of(arguments[0], definitions), **({"description": texts[0]} if texts else {})}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(each, definitions) for each in arguments]}
    if origin in (list, Sequence):
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return {"enum": [str(each) for each in kind]}
    if not typing.is_typeddict(kind):
        raise TypeError(f"{kind} has no JSON Schema")
    if kind.__name__ not in definitions:
        # Before its fields, for a type that contains itself.
        definitions[kind.__name__] = {}
        definitions[kind.__name__] = _of_row(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _of_row(row: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    patterns: dict[str, Any] = {}
    required: list[str] = []
    for name, kind in typing.get_type_hints(row, include_extras=True).items():
        # __required_keys__ is wrong with postponed annotations (Python 3.11).
        is_optional = typing.get_origin(kind) is typing.NotRequired
        kind = typing.get_args(kind)[0] if is_optional else kind
        like = [item for item in getattr(kind, "__metadata__", ()) if isinstance(item, NamesLike)]
        fields, key = (patterns, like[0].expression) if like else (properties, name)
        fields[key] = _of(kind, definitions)
        if row.__total__ and not is_optional:
            required.append(name)
    return {
        "type": "object",
        "properties": properties,
        **({"patternProperties": patterns} if patterns else {}),
        "required": required,
        "additionalProperties": False,
    }
