"""`[sweep]` as it stands in a spec's file, and everything that is wrong with it at once."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from orchestrator import errors, jobs
from orchestrator.sweeps import keys, records
from orchestrator.toml import documents, key_paths, schema

#: Where something is wrong, and what.
Finding: TypeAlias = tuple[key_paths.KeyPath, str]
_Tell: TypeAlias = Callable[[key_paths.KeyPath, str], None]

#: Keys that are read here; shapes reads the others.
_NESTED = ("axes", "points", "include", "exclude")
_SIZES = frozenset({"axes", "gpus", "nodes", "batch_argument", "batch_argument_of"})
#: What only some kinds take; all others take the rest.
_KEYS_OF: dict[str, frozenset[str]] = {
    "grid": frozenset({"axes"}),
    "zip": frozenset({"axes"}),
    "list": frozenset({"points"}),
    "random": frozenset({"axes", "samples", "seed"}),
    "strong": _SIZES | {"batch_size"},
    "weak": _SIZES | {"per_device_batch_size"},
    "batch": frozenset({"axes", "batch_sizes", "batch_argument"}),
    "workers": frozenset({"axes", "workers", "workers_argument"}),
}
_OF_SOME = frozenset[str]().union(*_KEYS_OF.values())
_NEEDS: dict[str, tuple[str, ...]] = {
    "grid": ("axes",),
    "zip": ("axes",),
    "list": ("points",),
    "random": ("axes", "samples"),
    "strong": (),
    "weak": (),
    "batch": ("batch_sizes",),
    "workers": ("workers",),
}
_LEAST = {
    **dict.fromkeys(("samples", "gpus", "nodes", "gpus_per_node", "batch_size"), 1),
    **dict.fromkeys(("per_device_batch_size", "batch_sizes", "repeats", "max_running"), 1),
    "workers": 0,
}
_DRAWS = ("choice", "integers", "log_uniform", "uniform")
#: Whole numbers up to here have a float of their own.
_LARGEST = 2**53


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Whole:
    """The shape of the table with all its keys."""

    sweep: records.Table = dataclasses.field(default_factory=records.Table)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Plain:
    """What shapes reads of it."""

    sweep: records.Keys = dataclasses.field(default_factory=records.Keys)


def read(document: documents.Document) -> tuple[records.Table, list[errors.Problem]]:
    """Return the sweep of a spec's document, and what is wrong with it."""
    found = document.data.get("sweep")
    if not isinstance(found, Mapping):
        told = "is missing: a sweep needs this table, with its kind"
        return records.Table(), [document.problem(("sweep",), told)]
    own = dataclasses.replace(document, data={"sweep": found})
    told_of: dict[key_paths.KeyPath, str] = {}

    def tell(at: key_paths.KeyPath, message: str) -> None:
        told_of.setdefault(at, message)

    for at, message in schema.unknown_keys(own, _Whole):
        tell(at, message)
    for at, message in documents.forbidden_characters(own):
        tell(at, message)
    plain = {key: value for key, value in found.items() if key not in _NESTED}
    built, wrong = schema.build(dataclasses.replace(document, data={"sweep": plain}), _Plain)
    for at, message in wrong.items():
        tell(at, message)
    axes = tuple(_axes(found.get("axes", {}), built.sweep.kind == "random", tell))
    table = records.Table(
        **{
            field.name: getattr(built.sweep, field.name)
            for field in dataclasses.fields(built.sweep)
        },
        axes=tuple(sorted(axes, key=lambda axis: axis.path)),
        points=tuple(_entries(found.get("points", []), ("sweep", "points"), tell)),
        include=tuple(_entries(found.get("include", []), ("sweep", "include"), tell)),
        exclude=tuple(_entries(found.get("exclude", []), ("sweep", "exclude"), tell)),
    )
    for at, message in _misfits(table, found):
        tell(at, message)
    return table, [document.problem(at, message) for at, message in told_of.items()]


def _misfits(table: records.Table, found: Mapping[str, Any]) -> Iterator[Finding]:
    """Give what does not go with the kind, is missing or too small."""
    for key, least in _LEAST.items():
        value = getattr(table, key)
        several = isinstance(value, tuple)
        for place, number in enumerate(value if several else [value]):
            if number is not None and number < least:
                at = ("sweep", key, place) if several else ("sweep", key)
                yield at, f"must be >= {least} (got {number})"
    if table.max_gpu_hours is not None and not 0 < table.max_gpu_hours < math.inf:
        yield ("sweep", "max_gpu_hours"), f"must be more than 0 (got {table.max_gpu_hours})"
    kind = found.get("kind")
    if kind is None:
        kinds = ", ".join(f'"{one}"' for one in _KEYS_OF)
        yield ("sweep", "kind"), f"is missing: one of {kinds}"
    # A kind that is none was told by its type.
    if kind not in _KEYS_OF:
        return
    for key in found:
        if key in _OF_SOME and key not in _KEYS_OF[kind]:
            of = " and ".join(f'"{one}"' for one, taken in _KEYS_OF.items() if key in taken)
            yield ("sweep", key), f'is for the kind {of}, and this one is "{kind}"'
    for key in _NEEDS[kind]:
        if not found.get(key):
            yield ("sweep", key), f'is missing: the kind "{kind}" needs it'
    if kind in ("strong", "weak"):
        if not found.get("gpus") and not found.get("nodes"):
            yield ("sweep", "gpus"), f'is missing: the kind "{kind}" needs gpus or nodes'
        elif found.get("gpus") and found.get("nodes"):
            yield ("sweep", "nodes"), "say either gpus or nodes, not both"
    if table.gpus_per_node is not None and not _varies_gpus(table):
        yield ("sweep", "gpus_per_node"), "is for a sweep that varies gpus, and this one does not"
    if kind == "zip":
        yield from _uneven(table.axes)


def _varies_gpus(table: records.Table) -> bool:
    axes = (axis.path for axis in table.axes)
    entries = (one.path for entry in (*table.points, *table.include) for one in entry)
    return bool(table.gpus) or records.GPUS in itertools.chain(axes, entries)


def _uneven(axes: tuple[records.Axis, ...]) -> Iterator[Finding]:
    for axis in axes[1:]:
        if axes[0].values and axis.values and len(axis.values) != len(axes[0].values):
            told = (
                f"has {len(axis.values)} values, and {documents.dotted(axes[0].path)} "
                f"{len(axes[0].values)}: axes side by side need as many"
            )
            yield axis.at, told


def _axes(found: object, drawn: bool, tell: _Tell) -> Iterator[records.Axis]:
    """Give the axes that can be read; tells of the others."""
    at: key_paths.KeyPath = ("sweep", "axes")
    if not isinstance(found, Mapping):
        tell(at, f"must be a table of keys and their values (got {schema.as_toml(found)})")
        return
    seen: set[tuple[str, ...]] = set()
    for parts, place, value in keys.leaves(found, at):
        path, told = keys.resolve(parts)
        if told or path in seen:
            tell(place, told or f"is there twice: {documents.dotted(path)}")
            continue
        seen.add(path)
        if drawn:
            draw, told = _draw(value)
            values: tuple[jobs.ArgumentValue, ...] = ()
        else:
            draw, values, told = None, *_values(value)
        of = values if draw is None else draw.of
        told = told or next(filter(None, (_size_misfit(path, one) for one in of)), "")
        if draw is not None and path == records.GPUS and draw.how.endswith("uniform"):
            told = "GPUs are drawn by { integers = [LOW, HIGH] } or { choice = [...] }"
        if told:
            tell(place, told)
        else:
            yield records.Axis(path=path, at=place, values=values, draw=draw)


def _values(value: object) -> tuple[tuple[jobs.ArgumentValue, ...], str]:
    if isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in _DRAWS:
        return (), 'is drawn: that is for the kind "random"'
    if not isinstance(value, list) or not value:
        return (), f"must be a list of the values that it takes (got {schema.as_toml(value)})"
    for item in value:
        if not schema.fits(item, jobs.ArgumentValue):
            return (), f"must be {schema.describe(jobs.ArgumentValue)} (got {schema.as_toml(item)})"
    return tuple(_frozen(item) for item in value), ""


def _draw(value: object) -> tuple[records.Draw | None, str]:
    """Return what is drawn, and what is wrong with it."""
    how = next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else None
    if not isinstance(value, Mapping) or how not in _DRAWS:
        told = "must be one of { uniform = [LOW, HIGH] }, { log_uniform = [LOW, HIGH] }, "
        return None, told + "{ integers = [LOW, HIGH] }, { choice = [...] }"
    of = value[how]
    if how == "choice":
        values, told = _values(of)
        return (None, told) if told else (records.Draw(how="choice", of=values), "")
    whole = how == "integers"
    numbers = of if isinstance(of, list) and len(of) == 2 else []
    if not numbers or not all(schema.fits(one, int if whole else int | float) for one in numbers):
        kind = "whole numbers" if whole else "numbers"
        return None, f"{how} takes two {kind}, the least and the largest (got {schema.as_toml(of)})"
    low, high = numbers
    if low >= high:
        return None, f"{how} takes the least first (got {schema.as_toml(of)})"
    if math.isinf(high - low):
        return None, f"{how}: from the least to the largest is too far (got {schema.as_toml(of)})"
    if how == "log_uniform" and low <= 0:
        return None, f"log_uniform takes numbers above 0 (got {schema.as_toml(of)})"
    if max(-low, high) > _LARGEST and whole:
        return None, f"integers takes numbers up to 2^53 (got {schema.as_toml(of)})"
    match how:
        case "integers":
            return records.Draw(how="integers", of=(low, high)), ""
        case "uniform":
            return records.Draw(how="uniform", of=(low, high)), ""
    return records.Draw(how="log_uniform", of=(low, high)), ""


def _entries(found: object, at: key_paths.KeyPath, tell: _Tell) -> Iterator[records.Settings]:
    """Give each table of a list as settings, in the order of their keys; tells of what is none."""
    if not isinstance(found, list):
        tell(at, f"must be a list of tables (got {schema.as_toml(found)})")
        return
    for number, entry in enumerate(found):
        if not isinstance(entry, Mapping):
            tell((*at, number), f"must be a table of keys (got {schema.as_toml(entry)})")
            continue
        settings: dict[tuple[str, ...], records.Setting] = {}
        for parts, place, value in keys.leaves(entry, (*at, number)):
            path, told = keys.resolve(parts)
            if not told and path in settings:
                told = f"is there twice: {documents.dotted(path)}"
            if not told and not schema.fits(value, jobs.ArgumentValue):
                words = schema.describe(jobs.ArgumentValue)
                told = f"must be {words} (got {schema.as_toml(value)})"
            if told := told or _size_misfit(path, value):
                tell(place, told)
            else:
                settings[path] = records.Setting(path=path, value=_frozen(value), at=place)
        yield tuple(settings[path] for path in sorted(settings))


def _size_misfit(path: tuple[str, ...], value: object) -> str:
    if path != records.GPUS or (type(value) is int and value >= 1):
        return ""
    return f"must be a number of GPUs, from 1 (got {schema.as_toml(value)})"


def _frozen(value: Any) -> jobs.ArgumentValue:
    return tuple(value) if isinstance(value, list) else value
