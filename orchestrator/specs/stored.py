"""Specs as JSON, with the tables and keys of their TOML form."""

from __future__ import annotations

import json
from typing import Any

from orchestrator import errors, jobs
from orchestrator.specs import toml_tables
from orchestrator.toml import documents, schema


def to_json(spec: jobs.JobSpec) -> str:
    """Return a spec as JSON; from_json() reads it."""
    return json.dumps(toml_tables.to_tables(spec), indent=2)


def from_json(text: str) -> jobs.JobSpec:
    """Return the spec that to_json() wrote. Raises SpecError for that of another version."""
    try:
        data = _without_nulls(json.loads(text))
    except ValueError as error:
        problem = errors.Problem(source="stored spec", message=f"not JSON: {error}")
        raise errors.SpecError([problem]) from error
    document = documents.of(data, "stored spec")
    file, problems = schema.build(document, toml_tables.FILE)
    problems |= dict(schema.unknown_keys(document, toml_tables.FILE))
    if problems:
        raise errors.SpecError([document.problem(at, text) for at, text in problems.items()])
    return toml_tables.to_spec(file)


def _without_nulls(value: Any) -> Any:
    """Return JSON data without its nulls, which TOML does not have."""
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
