"""The tables of a spec as TOML and JSON, derived from JobSpec: `[job]` has what is no table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from orchestrator import errors, jobs
from orchestrator.toml import documents, key_paths, schema


def _file_schema() -> Any:
    hints = schema.fields_of(jobs.JobSpec)
    defaults = {field.name: field.default for field in dataclasses.fields(jobs.JobSpec)}
    keys: list[tuple[str, Any, Any]] = [
        (name, hint, dataclasses.field(default="" if name == "name" else defaults[name]))
        for name, hint in hints.items()
        if not schema.is_table(hint)
    ]
    job = dataclasses.make_dataclass("JobTable", keys, frozen=True, kw_only=True)
    tables: list[tuple[str, Any, Any]] = [
        (name, hint, dataclasses.field(default_factory=hint if isinstance(hint, type) else dict))
        for name, hint in {"job": job, **hints}.items()
        if schema.is_table(hint)
    ]
    return dataclasses.make_dataclass("SpecFile", tables, frozen=True, kw_only=True)


#: The schema of a spec's text: job, resources, environment, container, launch, args, ...
FILE: Any = _file_schema()
TABLES: tuple[str, ...] = tuple(schema.fields_of(FILE))
#: The tables whose keys are all known.
RECORDS = {
    name: hint for name, hint in schema.fields_of(FILE).items() if dataclasses.is_dataclass(hint)
}
#: Keys that accept a number, in minutes or megabytes: `time_limit = 30` is `"30"`.
NUMBERS = frozenset(
    {("job", "time_limit")}
    | {("resources", key) for key in ("mem", "mem_per_cpu", "mem_per_gpu", "tmp")}
)
#: Keys of which "" means none, instead of the profile's value.
OVERRIDING = frozenset(
    {("job", "account"), ("job", "partition"), ("job", "qos"), ("environment", "fabric")}
)
#: Keys whose value is shell text of several lines.
MULTI_LINE = frozenset({("environment", "setup"), ("launch", "command")})


#: Keys of which only one may be set. One of a higher layer replaces those of a lower layer.
ALTERNATIVES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("resources", ("gpus_per_node", "gres")),
    ("resources", ("gpu_type", "gres")),
    ("resources", ("mem", "mem_per_cpu", "mem_per_gpu")),
    ("environment", ("conda", "venv")),
    ("launch", ("module", "script", "program", "command")),
    ("array", ("tasks", "size")),
)


def replaced_by(path: key_paths.KeyPath) -> list[key_paths.KeyPath]:
    """Return the keys of a lower layer that this key of a higher layer replaces."""
    return [
        (table, key)
        for table, keys in ALTERNATIVES
        if path[0] == table and path[1] in keys
        # A type of GPU alone requests no GPU.
        if path[1] != "gpu_type"
        for key in keys
        if key != path[1]
    ]


def to_spec(file: Any) -> jobs.JobSpec:
    tables = {name: getattr(file, name) for name in TABLES}
    return jobs.JobSpec(**vars(tables.pop("job")), **tables)


def to_json(spec: jobs.JobSpec) -> str:
    """Return the tables of a spec as JSON; from_json() reads it."""
    data = dataclasses.asdict(spec)
    tables = {name: data.pop(name) for name in TABLES if name != "job"}
    return json.dumps({"job": data, **tables}, indent=2)


def from_json(text: str) -> jobs.JobSpec:
    """Return the spec that to_json() wrote. Raises SpecError for that of another version."""
    try:
        data = _without_nulls(json.loads(text))
    except ValueError as error:
        problem = errors.Problem(source="stored spec", message=f"not JSON: {error}")
        raise errors.SpecError([problem]) from error
    document = stored(data, "stored spec")
    file, problems = schema.build(document, FILE)
    if problems:
        raise errors.SpecError([document.problem(at, text) for at, text in problems.items()])
    return to_spec(file)


def to_store(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a spec's file to be stored; stored() reads them."""
    return _with_launcher(data, jobs.Launch.launcher)


def stored(data: Mapping[str, Any], source: str) -> documents.Document:
    """Return the stored tables of a spec.

    Before there was a launcher `auto`, torchrun was the default, and defaults were not stored.
    """
    return documents.of(_with_launcher(data, "torchrun"), source)


def _with_launcher(data: Mapping[str, Any], launcher: str) -> dict[str, Any]:
    launch = data.get("launch", {})
    if not isinstance(launch, Mapping) or "launcher" in launch:
        return dict(data)
    return {**data, "launch": {**launch, "launcher": launcher}}


def _without_nulls(value: Any) -> Any:
    """Return JSON data without its nulls, which TOML does not have."""
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
