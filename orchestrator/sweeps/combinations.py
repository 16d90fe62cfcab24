"""The combinations of values that a sweep asks for, in order; no job is made of them yet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from orchestrator import jobs
from orchestrator.sweeps import batch_size, draws, keys, records, table
from orchestrator.toml import documents, key_paths

#: More is a slip of the pen: a hundred full arrays of Slurm's default MaxArraySize.
MOST_POINTS = 100_000
#: A sample that was there before is drawn anew; after so many in vain there are no others.
_VAIN_DRAWS = 1000


def fixed_paths(sweep: records.Table) -> dict[tuple[str, ...], str]:
    """Return the keys that the kind itself gives values, and what it does with them."""
    match sweep.kind:
        case "strong" | "weak":
            told = "varies the size itself"
            fixed = {batch_size.argument(sweep): "fixes the batch"}
            return {**fixed, records.GPUS: told, ("resources", "nodes"): told}
        case "batch":
            return {batch_size.argument(sweep): "varies it itself"}
        case "workers":
            return {keys.argument(sweep.workers_argument): "varies it itself"}
    return {}


def findings(sweep: records.Table) -> Iterator[table.Finding]:
    """Give what is wrong with the combinations as a whole."""
    fixed = fixed_paths(sweep)
    for axis in sweep.axes:
        if axis.path in fixed:
            yield axis.at, f'cannot be an axis: the kind "{sweep.kind}" {fixed[axis.path]}'
    count = _count(sweep)
    if count > MOST_POINTS:
        yield ("sweep",), f"makes {count} points, and {MOST_POINTS} is the most"


def _count(sweep: records.Table) -> int:
    """Return how many points there are before any is left out, without making them."""
    if sweep.kind == "random":
        made = sweep.samples or 0
    elif sweep.kind == "zip":
        made = max((len(axis.values) for axis in sweep.axes), default=0)
    else:
        made = math.prod(map(len, _blocks(sweep)))
    return (made + len(sweep.include)) * max(sweep.repeats, 1)


def made(sweep: records.Table) -> tuple[list[records.Settings], list[table.Finding]]:
    """Return each point's settings once, and what is wrong: the draws, the exceptions."""
    wrong: list[table.Finding] = []
    if sweep.kind == "random":
        found, told = _drawn(sweep)
        wrong += [(("sweep", "samples"), told)] if told else []
    else:
        found = [
            tuple(itertools.chain.from_iterable(parts))
            for parts in itertools.product(*_blocks(sweep))
        ]
    kept = found
    for number, entry in enumerate(sweep.exclude):
        wanted = [point for point in found if _has(point, entry)]
        if not wanted:
            varied = sorted({documents.dotted(one.path) for point in found for one in point})
            told = f"no point has these values; the sweep varies {', '.join(varied)}"
            wrong.append((("sweep", "exclude", number), told))
        elif not entry:
            wrong.append((("sweep", "exclude", number), "is empty: it would leave out all points"))
        kept = [point for point in kept if not _has(point, entry)]
    return [*kept, *sweep.include], wrong


def _blocks(sweep: records.Table) -> list[Sequence[records.Settings]]:
    """Return what is combined with one another: the kind's own values first, then the axes."""
    match sweep.kind:
        case "list":
            return [sweep.points]
        case "zip":
            length = min((len(axis.values) for axis in sweep.axes), default=0)
            return [[tuple(_at(axis, place) for axis in sweep.axes) for place in range(length)]]
    key, numbers = "", tuple[int, ...]()
    path: tuple[str, ...] = ()
    match sweep.kind:
        case "strong" | "weak" if sweep.gpus:
            key, path, numbers = "gpus", records.GPUS, sweep.gpus
        case "strong" | "weak":
            key, path, numbers = "nodes", ("resources", "nodes"), sweep.nodes
        case "batch":
            key, numbers = "batch_sizes", sweep.batch_sizes
            path = batch_size.argument(sweep)
        case "workers":
            key, numbers = "workers", sweep.workers
            path = keys.argument(sweep.workers_argument)
    own = [_settings(path, ("sweep", key), numbers)] if key else []
    axes = [[(_at(axis, place),) for place in range(len(axis.values))] for axis in sweep.axes]
    return [*own, *axes]


def _settings(
    path: tuple[str, ...], at: key_paths.KeyPath, numbers: Iterable[int]
) -> list[records.Settings]:
    return [
        (records.Setting(path=path, value=number, at=(*at, place)),)
        for place, number in enumerate(numbers)
    ]


def _at(axis: records.Axis, place: int) -> records.Setting:
    return records.Setting(path=axis.path, value=axis.values[place], at=(*axis.at, place))


def _drawn(sweep: records.Table) -> tuple[list[records.Settings], str]:
    """Return the samples, and why there are not enough.

    More samples begin with the same ones, and another axis leaves the values of these as they are.
    """
    found: dict[tuple[str, ...], records.Settings] = {}
    wanted, vain, number = sweep.samples or 0, 0, 0
    while len(found) < wanted and vain < _VAIN_DRAWS:
        point = tuple(
            records.Setting(path=axis.path, value=_value(axis, sweep.seed, number), at=axis.at)
            for axis in sweep.axes
        )
        key = tuple(repr(setting.value) for setting in point)
        vain = vain + 1 if key in found else 0
        found.setdefault(key, point)
        number += 1
    if len(found) == wanted:
        return [*found.values()], ""
    return [*found.values()], (
        f"only {len(found)} different points came up: ask for fewer, or use the kind "
        '"grid" for all there are'
    )


def _value(axis: records.Axis, seed: int, number: int) -> jobs.ArgumentValue:
    assert axis.draw is not None
    return draws.value(axis.draw, seed, documents.dotted(axis.path), number)


def _has(point: records.Settings, entry: records.Settings) -> bool:
    values = {setting.path: setting.value for setting in point}
    return all(
        setting.path in values and _same(values[setting.path], setting.value) for setting in entry
    )


def _same(one: jobs.ArgumentValue, other: jobs.ArgumentValue) -> bool:
    """Tell whether two values are one: 1 and 1.0 are, 1 and true are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
