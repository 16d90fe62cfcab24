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
    return json.dumps(dataclasses.asdict(part), sort_keys=True)


def from_json(kind: type[_Part], text: str) -> _Part:
    """Return what `to_json` wrote; fields that this version does not know are left out."""
    names = {field.name for field in dataclasses.fields(kind)}
    known: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in json.loads(text).items()
        if name in names
    }
    return kind(**known)


def sha256(document: str) -> str:
    """Return the identity of an environment's JSON."""
    return hashlib.sha256(document.encode()).hexdigest()
