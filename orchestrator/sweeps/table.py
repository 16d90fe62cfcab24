"""Read the [sweep] table of a spec, with all its problems."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from orchestrator import errors, jobs
from orchestrator.sweeps import keys, records
from orchestrator.toml import documents, key_paths, schema

#: Where something is wrong, and what.
Finding: TypeAlias = tuple[key_paths.KeyPath, str]
_Report: TypeAlias = Callable[[key_paths.KeyPath, str], None]

#: Keys that schema.build does not read.
_NESTED = ("axes", "points", "include", "exclude")
_SIZES = frozenset({"axes", "gpus", "nodes", "batch_argument", "batch_argument_of"})
#: Keys that only some kinds take.
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
_OF_SOME_KINDS = frozenset[str]().union(*_KEYS_OF.values())
_REQUIRED: dict[str, tuple[str, ...]] = {
    "grid": ("axes",),
    "zip": ("axes",),
    "list": ("points",),
    "random": ("axes", "samples"),
    "batch": ("batch_sizes",),
    "workers": ("workers",),
}
_LEAST = {
    **dict.fromkeys(("samples", "gpus", "nodes", "gpus_per_node", "batch_size"), 1),
    **dict.fromkeys(("per_device_batch_size", "batch_sizes", "repeats", "max_running"), 1),
    "workers": 0,
}
_DRAWS = ("choice", "integers", "log_uniform", "uniform")
#: Larger whole numbers are not exact as floats.
_LARGEST = 2**53


@dataclasses.dataclass(frozen=True, kw_only=True)
class _AllKeys:
    sweep: records.Table = dataclasses.field(default_factory=records.Table)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PlainKeys:
    sweep: records.Keys = dataclasses.field(default_factory=records.Keys)


def read(document: documents.Document) -> tuple[records.Table, list[errors.Problem]]:
    """Return the sweep of a spec, and its problems."""
    data = document.data.get("sweep")
    if not isinstance(data, Mapping):
        message = "is missing: a sweep needs this table and its kind"
        return records.Table(), [document.problem(("sweep",), message)]
    own = dataclasses.replace(document, data={"sweep": data})
    problems: dict[key_paths.KeyPath, str] = {}
    plain = {key: value for key, value in data.items() if key not in _NESTED}
    built, wrong = schema.build(dataclasses.replace(document, data={"sweep": plain}), _PlainKeys)
    for at, message in (
        *schema.unknown_keys(own, _AllKeys),
        *documents.forbidden_characters(own),
        *wrong.items(),
    ):
        problems.setdefault(at, message)

    def report(at: key_paths.KeyPath, message: str) -> None:
        problems.setdefault(at, message)

    axes = _axes(data.get("axes", {}), built.sweep.kind == "random", report)
    points, include, exclude = (
        tuple(_entries(data.get(key, []), ("sweep", key), report))
        for key in ("points", "include", "exclude")
    )
    table = records.Table(
        **{
            field.name: getattr(built.sweep, field.name)
            for field in dataclasses.fields(built.sweep)
        },
        axes=tuple(sorted(axes, key=lambda axis: axis.path)),
        points=points,
        include=include,
        exclude=exclude,
    )
    for at, message in _misfits(table, data):
        report(at, message)
    return table, [document.problem(at, message) for at, message in problems.items()]


def _misfits(table: records.Table, data: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield keys that are too small, missing, or of another kind."""
    for key, least in _LEAST.items():
        value = getattr(table, key)
        numbered = enumerate(value) if isinstance(value, tuple) else [(None, value)]
        for index, number in numbered:
            if number is not None and number < least:
                at: key_paths.KeyPath = ("sweep", key)
                yield at if index is None else (*at, index), f"must be >= {least} (got {number})"
    if table.max_gpu_hours is not None and not 0 < table.max_gpu_hours < math.inf:
        yield ("sweep", "max_gpu_hours"), f"must be > 0 (got {table.max_gpu_hours})"
    kind = data.get("kind")
    if kind is None:
        kinds = ", ".join(f'"{name}"' for name in _KEYS_OF)
        yield ("sweep", "kind"), f"is missing: one of {kinds}"
    if kind not in _KEYS_OF:
        return
    for key in data:
        if key in _OF_SOME_KINDS and key not in _KEYS_OF[kind]:
            kinds = " and ".join(f'"{name}"' for name, taken in _KEYS_OF.items() if key in taken)
            yield ("sweep", key), f'is only for kind {kinds}, and this sweep is of kind "{kind}"'
    for key in _REQUIRED.get(kind, ()):
        if not data.get(key):
            yield ("sweep", key), f'is missing: kind "{kind}" needs it'
    if kind in ("strong", "weak"):
        if not data.get("gpus") and not data.get("nodes"):
            yield ("sweep", "gpus"), f'is missing: kind "{kind}" needs gpus or nodes'
        elif data.get("gpus") and data.get("nodes"):
            yield ("sweep", "nodes"), "set either gpus or nodes, not both"
    varied = [axis.path for axis in table.axes]
    varied += [setting.path for entry in (*table.points, *table.include) for setting in entry]
    if table.gpus_per_node is not None and not table.gpus and records.GPUS not in varied:
        yield ("sweep", "gpus_per_node"), "is only for sweeps that vary gpus"
    for axis in table.axes[1:] if kind == "zip" else ():
        first, count, expected = table.axes[0], len(axis.values), len(table.axes[0].values)
        if count and expected and count != expected:
            yield (
                axis.at,
                f"has {count} values, and {documents.dotted(first.path)} {expected}: "
                'axes of kind "zip" need the same number of values',
            )


def _axes(data: object, is_random: bool, report: _Report) -> Iterator[records.Axis]:
    """Yield the valid axes, and report the others."""
    at: key_paths.KeyPath = ("sweep", "axes")
    if not isinstance(data, Mapping):
        report(at, f"must be a table of keys and their values (got {schema.as_toml(data)})")
        return
    seen: set[tuple[str, ...]] = set()
    for parts, place, value in keys.leaves(data, at):
        try:
            path = _new_path(parts, seen)
            draw = _draw(value) if is_random else None
            values = draw.of if draw is not None else _values(value)
            for one in values:
                _check_gpus(path, one)
            if draw is not None and path == records.GPUS and draw.how.endswith("uniform"):
                raise records.InvalidError(
                    "GPUs can only be drawn by { integers = [LOW, HIGH] } or { choice = [...] }"
                )
        except records.InvalidError as exc:
            report(place, str(exc))
        else:
            values = values if draw is None else ()
            yield records.Axis(path=path, at=place, values=values, draw=draw)


def _new_path(parts: tuple[str, ...], seen: set[tuple[str, ...]]) -> tuple[str, ...]:
    path = keys.resolve(parts)
    if path in seen:
        raise records.InvalidError(f"is given twice: {documents.dotted(path)}")
    seen.add(path)
    return path


def _values(value: object) -> tuple[jobs.ArgumentValue, ...]:
    if isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in _DRAWS:
        raise records.InvalidError('is a distribution, which is only for kind "random"')
    if not isinstance(value, list) or not value:
        raise records.InvalidError(f"must be a list of values (got {schema.as_toml(value)})")
    return tuple(map(_value, value))


def _value(value: object) -> jobs.ArgumentValue:
    if not schema.fits(value, jobs.ArgumentValue):
        expected = schema.describe(jobs.ArgumentValue)
        raise records.InvalidError(f"must be {expected} (got {schema.as_toml(value)})")
    frozen: Any = tuple(value) if isinstance(value, list) else value
    return frozen  # type: ignore[no-any-return]


def _draw(value: object) -> records.Draw:
    how: Any = next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else None
    if not isinstance(value, Mapping) or how not in _DRAWS:
        raise records.InvalidError(
            "must be one of { uniform = [LOW, HIGH] }, { log_uniform = [LOW, HIGH] }, "
            "{ integers = [LOW, HIGH] }, { choice = [...] }"
        )
    of = value[how]
    if how == "choice":
        return records.Draw(how="choice", of=_values(of))
    kind: Any = int if how == "integers" else int | float
    problem = ""
    if not isinstance(of, list) or len(of) != 2 or not all(schema.fits(end, kind) for end in of):
        numbers = "whole numbers" if how == "integers" else "numbers"
        problem = f"{how} needs two {numbers}, [LOW, HIGH]"
    elif of[0] >= of[1]:
        problem = f"{how} needs LOW < HIGH"
    elif math.isinf(of[1] - of[0]):
        problem = f"the range of {how} is too large"
    elif how == "log_uniform" and of[0] <= 0:
        problem = "log_uniform needs numbers above 0"
    elif how == "integers" and max(-of[0], of[1]) > _LARGEST:
        problem = "integers takes numbers up to 2^53"
    if problem:
        raise records.InvalidError(f"{problem} (got {schema.as_toml(of)})")
    return records.Draw(how=how, of=tuple(of))


def _entries(data: object, at: key_paths.KeyPath, report: _Report) -> Iterator[records.Settings]:
    """Yield each table of a list as settings, sorted by key; report what is invalid."""
    if not isinstance(data, list):
        report(at, f"must be a list of tables (got {schema.as_toml(data)})")
        return
    for number, entry in enumerate(data):
        if not isinstance(entry, Mapping):
            report((*at, number), f"must be a table of keys (got {schema.as_toml(entry)})")
            continue
        settings, seen = [], set[tuple[str, ...]]()
        for parts, place, value in keys.leaves(entry, (*at, number)):
            try:
                path = _new_path(parts, seen)
                _check_gpus(path, value)
                settings.append(records.Setting(path=path, value=_value(value), at=place))
            except records.InvalidError as exc:
                report(place, str(exc))
        yield tuple(sorted(settings, key=lambda setting: setting.path))


def _check_gpus(path: tuple[str, ...], value: object) -> None:
    if path == records.GPUS and (type(value) is not int or value < 1):
        raise records.InvalidError(
            f"must be a positive number of GPUs (got {schema.as_toml(value)})"
        )
