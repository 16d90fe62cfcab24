"""Environments as JSON, and their identity."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, TypeVar

from orchestrator.environments import records

_Part = TypeVar("_Part", records.Environment, records.Placement)


def to_json(part: records.Environment | records.Placement) -> str:
    """Return JSON that is equal for equal values."""
    return json.dumps(vars(part), sort_keys=True)


def from_json(kind: type[_Part], text: str) -> _Part:
    """Return what `to_json` wrote, without fields and values that this version does not know."""
    stored, empty = json.loads(text), kind()
    known: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        value, usual = stored.get(field.name), getattr(empty, field.name)
        if isinstance(value, list) and isinstance(usual, tuple):
            value = tuple(item for item in value if isinstance(item, str))
        if isinstance(value, dict):
            value = {name: item for name, item in value.items() if isinstance(item, str)}
        if type(value) is type(usual):
            known[field.name] = value
    return kind(**known)


def sha256(document: str) -> str:
    """Return the identity of an environment's JSON."""
    return hashlib.sha256(document.encode()).hexdigest()
