"""The tables of a spec's text, derived from JobSpec: `[job]` holds what is no table of its own."""

from __future__ import annotations

import collections.abc
import dataclasses
import typing
from typing import Any

from orchestrator import jobs
from orchestrator.toml import schema


def _is_table(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or typing.get_origin(hint) is collections.abc.Mapping


def _file_shape() -> Any:
    hints = schema.fields_of(jobs.JobSpec)
    defaults = {field.name: field.default for field in dataclasses.fields(jobs.JobSpec)}
    keys: list[tuple[str, Any, Any]] = [
        (name, hint, dataclasses.field(default="" if name == "name" else defaults[name]))
        for name, hint in hints.items()
        if not _is_table(hint)
    ]
    job = dataclasses.make_dataclass("JobTable", keys, frozen=True, kw_only=True)
    tables: list[tuple[str, Any, Any]] = [
        (name, hint, dataclasses.field(default_factory=hint if isinstance(hint, type) else dict))
        for name, hint in {"job": job, **hints}.items()
        if _is_table(hint)
    ]
    return dataclasses.make_dataclass("SpecFile", tables, frozen=True, kw_only=True)


#: The shape of a spec's text: job, resources, environment, container, launch, args, ...
FILE: Any = _file_shape()
#: Kinds of most values.
_PLAIN = frozenset({type(None), str, int, float, bool})
TABLES: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(FILE))
#: Those of them whose keys are all known.
RECORDS = frozenset(
    name for name, hint in schema.fields_of(FILE).items() if dataclasses.is_dataclass(hint)
)
#: Where Slurm takes a plain number: minutes, and megabytes. `time_limit = 30` is `"30"`.
NUMBERS = frozenset(
    {
        ("job", "time_limit"),
        ("resources", "mem"),
        ("resources", "mem_per_cpu"),
        ("resources", "mem_per_gpu"),
        ("resources", "tmp"),
    }
)
#: Where a value is shell text of several lines.
LINES = frozenset({("environment", "setup"), ("launch", "command")})
#: What a key on a higher layer puts out of force on a lower one: they say the same in other ways.
REPLACES: dict[str, tuple[str, ...]] = {
    "launch.module": ("launch.script", "launch.program", "launch.command"),
    "launch.script": ("launch.module", "launch.program", "launch.command"),
    "launch.program": ("launch.module", "launch.script", "launch.command"),
    "launch.command": ("launch.module", "launch.script", "launch.program"),
    "resources.gres": ("resources.gpus_per_node", "resources.gpu_type"),
    "resources.gpus_per_node": ("resources.gres",),
    "resources.mem": ("resources.mem_per_cpu", "resources.mem_per_gpu"),
    "resources.mem_per_cpu": ("resources.mem", "resources.mem_per_gpu"),
    "resources.mem_per_gpu": ("resources.mem", "resources.mem_per_cpu"),
    "array.tasks": ("array.size",),
    "array.size": ("array.tasks",),
    "environment.conda": ("environment.venv",),
    "environment.venv": ("environment.conda",),
}


def to_spec(file: Any) -> jobs.JobSpec:
    """Return the JobSpec of a spec's tables."""
    tables = {name: getattr(file, name) for name in TABLES}
    job = tables.pop("job")
    keys = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    return jobs.JobSpec(**keys, **tables)


def to_tables(spec: jobs.JobSpec) -> dict[str, Any]:
    """Return the tables of a JobSpec, as they stand in a spec's text."""
    data = _plain(spec)
    tables = {name: data.pop(name) for name in TABLES if name != "job"}
    return {"job": data, **tables}


def _plain(value: Any) -> Any:
    # dataclasses.asdict copies each value too: a third of what reading a spec took.
    if type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value):
        return {
            name: item if type(item) in _PLAIN else _plain(item)
            for name in schema.fields_of(type(value))
            for item in (getattr(value, name),)
        }
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value
