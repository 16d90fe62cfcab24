"""Read the [sweep] table of a spec, with all its problems."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from orchestrator import errors, jobs
from orchestrator.sweeps import keys, records
from orchestrator.toml import documents, schema
from orchestrator.toml.key_paths import KeyPath

#: Keys that schema.build does not read.
_NESTED = ("axes", "points", "include", "exclude")
_SIZES = ("axes", "gpus", "nodes", "batch_argument", "batch_argument_of")
#: Keys that only some kinds take: those that a kind requires, and the others.
_KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "grid": (("axes",), ()),
    "zip": (("axes",), ()),
    "list": (("points",), ()),
    "random": (("axes", "samples"), ("seed",)),
    "strong": ((), (*_SIZES, "batch_size")),
    "weak": ((), (*_SIZES, "per_device_batch_size")),
    "batch": (("batch_sizes",), ("axes", "batch_argument")),
    "workers": (("workers",), ("axes", "workers_argument")),
}
#: Larger whole numbers are not exact as floats.
_LARGEST = 2**53
#: What a distribution needs.
_BOUNDS = {
    "uniform": "two numbers [LOW, HIGH], LOW < HIGH < LOW + 1e308",
    "log_uniform": "two numbers [LOW, HIGH], 0 < LOW < HIGH",
    "integers": "two whole numbers [LOW, HIGH], LOW < HIGH, of at most 2^53",
}

_Built = TypeVar("_Built")


class Problems:
    """The problems of a document, each once."""

    def __init__(self, document: documents.Document) -> None:
        self._document = document
        self._problems: dict[errors.Problem, None] = {}
        #: of add()
        self.paths: set[KeyPath] = set()

    def add(self, at: KeyPath, message: str) -> None:
        self.paths.add(at)
        self.keep([self._document.problem(at, message)])

    def keep(self, problems: Iterable[errors.Problem]) -> None:
        self._problems |= dict.fromkeys(problems)

    def check(self) -> None:
        if self._problems:
            raise errors.SpecError(sorted(self._problems, key=lambda problem: problem.line or 0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File:
    sweep: records.Table = dataclasses.field(default_factory=records.Table)


def read(document: documents.Document, problems: Problems) -> records.Table:
    data = document.data.get("sweep")
    if not isinstance(data, Mapping):
        problems.add(("sweep",), "is missing: a sweep needs this table and its kind")
        return records.Table()
    whole = dataclasses.replace(document, data={"sweep": data})
    plain = {key: value for key, value in data.items() if key not in _NESTED}
    built, wrong = schema.build(dataclasses.replace(document, data={"sweep": plain}), _File)
    for at, message in (*documents.forbidden_characters(whole), *wrong.items()):
        problems.add(at, message)
    axes = _axes(data.get("axes", {}), built.sweep.kind == "random", problems)
    entries: dict[str, Any] = {
        key: tuple(_entries(data.get(key, []), ("sweep", key), problems)) for key in _NESTED[1:]
    }
    table = dataclasses.replace(
        built.sweep, axes=tuple(sorted(axes, key=lambda axis: axis.path)), **entries
    )
    for path, error in schema.value_errors(table):
        problems.add(("sweep", *path), error)
    if table.gpus_per_node == 0:
        problems.add(("sweep", "gpus_per_node"), "must be >= 1 (got 0)")
    if table.max_gpu_hours is not None and not 0 < table.max_gpu_hours < math.inf:
        problems.add(("sweep", "max_gpu_hours"), f"must be > 0 (got {table.max_gpu_hours})")
    _check_kind(table, data, problems)
    return table


def _check_kind(table: records.Table, data: Mapping[str, Any], problems: Problems) -> None:
    """Report keys that are missing or of another kind."""
    kind = data.get("kind")
    if kind is None:
        kinds = ", ".join(f'"{name}"' for name in _KINDS)
        problems.add(("sweep", "kind"), f"is missing: one of {kinds}")
    # A value of another type is reported already; a table or an array cannot be looked up.
    if not isinstance(kind, str) or kind not in _KINDS:
        return
    for key in data:
        takers = [name for name, (required, more) in _KINDS.items() if key in (*required, *more)]
        if takers and kind not in takers:
            kinds = " and ".join(f'"{name}"' for name in takers)
            message = f'is only for kind {kinds}, and this sweep is of kind "{kind}"'
            problems.add(("sweep", key), message)
    for key in _KINDS[kind][0]:
        # A wrong value is reported already.
        if not data.get(key) and ("sweep", key) not in problems.paths:
            problems.add(("sweep", key), f'is missing: kind "{kind}" needs it')
    if kind in ("strong", "weak"):
        if not data.get("gpus") and not data.get("nodes"):
            problems.add(("sweep", "gpus"), f'is missing: kind "{kind}" needs gpus or nodes')
        elif data.get("gpus") and data.get("nodes"):
            problems.add(("sweep", "nodes"), "set either gpus or nodes, not both")
    varied = [axis.path for axis in table.axes]
    varied += [setting.path for entry in (*table.points, *table.include) for setting in entry]
    if table.gpus_per_node is not None and not table.gpus and records.GPUS not in varied:
        problems.add(("sweep", "gpus_per_node"), "is only for sweeps that vary gpus")
    for axis in table.axes[1:] if kind == "zip" else ():
        first, count, expected = table.axes[0], len(axis.values), len(table.axes[0].values)
        if count and expected and count != expected:
            problems.add(
                axis.at,
                f"has {count} values, and {documents.dotted(first.path)} {expected}: "
                'axes of kind "zip" need the same number of values',
            )


def _axes(data: object, is_random: bool, problems: Problems) -> Iterator[records.Axis]:
    at: KeyPath = ("sweep", "axes")
    if not isinstance(data, Mapping):
        problems.add(at, f"must be a table of keys and their values (got {schema.as_toml(data)})")
        return iter(())

    def axis(path: tuple[str, ...], value_at: KeyPath, value: object) -> records.Axis:
        draw, values = _draw(value) if is_random else ("", _values(value))
        for number in values:
            _check_gpus(path, number)
        if path == records.GPUS and draw.endswith("uniform"):
            raise records.InvalidError(
                "GPUs can only be drawn by { integers = [LOW, HIGH] } or { choice = [...] }"
            )
        return records.Axis(path=path, at=value_at, draw=draw, values=values)

    return _built(data, at, axis, problems)


def _entries(data: object, at: KeyPath, problems: Problems) -> Iterator[records.Settings]:
    """Yield each table of a list as settings, sorted by key."""
    if not isinstance(data, list):
        problems.add(at, f"must be a list of tables (got {schema.as_toml(data)})")
        return

    def setting(path: tuple[str, ...], value_at: KeyPath, value: object) -> records.Setting:
        _check_gpus(path, value)
        return records.Setting(path=path, value=_value(value), at=value_at)

    for number, entry in enumerate(data):
        if isinstance(entry, Mapping):
            settings = _built(entry, (*at, number), setting, problems)
            yield tuple(sorted(settings, key=lambda setting: setting.path))
        else:
            message = f"must be a table of keys (got {schema.as_toml(entry)})"
            problems.add((*at, number), message)


def _built(
    table: Mapping[str, Any],
    at: KeyPath,
    build: Callable[[tuple[str, ...], KeyPath, object], _Built],
    problems: Problems,
) -> Iterator[_Built]:
    """Yield what is built of each key and value, and report those that are invalid."""
    known: set[tuple[str, ...]] = set()
    for parts, value_at, value in keys.leaves(table, at):
        try:
            path = keys.resolve(parts)
            if path in known:
                raise records.InvalidError(f"is given twice: {documents.dotted(path)}")
            known.add(path)
            yield build(path, value_at, value)
        except records.InvalidError as exc:
            problems.add(value_at, str(exc))


def _values(value: object) -> tuple[jobs.ArgumentValue, ...]:
    if isinstance(value, Mapping) and len(value) == 1 and {*value} <= {"choice", *_BOUNDS}:
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


def _draw(value: object) -> tuple[str, tuple[jobs.ArgumentValue, ...]]:
    how: Any = ""
    of: Any = None
    if isinstance(value, Mapping) and len(value) == 1:
        ((how, of),) = value.items()
    if how == "choice":
        return how, _values(of)
    if how not in _BOUNDS:
        raise records.InvalidError(
            "must be one of { uniform = [LOW, HIGH] }, { log_uniform = [LOW, HIGH] }, "
            "{ integers = [LOW, HIGH] }, { choice = [...] }"
        )
    kind: Any = int if how == "integers" else int | float
    is_pair = isinstance(of, list) and len(of) == 2 and all(schema.fits(end, kind) for end in of)
    if (
        not is_pair
        or not 0 < of[1] - of[0] < 1e308
        or (how == "log_uniform" and of[0] <= 0)
        or (how == "integers" and max(-of[0], of[1]) > _LARGEST)
    ):
        message = f"{how} needs {_BOUNDS[how]} (got {schema.as_toml(of)})"
        raise records.InvalidError(message)
    return how, tuple(of)


def _check_gpus(path: tuple[str, ...], value: object) -> None:
    if path == records.GPUS and (type(value) is not int or value < 1):
        raise records.InvalidError(
            f"must be a positive number of GPUs (got {schema.as_toml(value)})"
        )
