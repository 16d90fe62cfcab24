"""The combinations of values that a sweep consists of, in order."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.sweeps import batch_size, keys, records, table
from orchestrator.toml import documents
from orchestrator.toml.key_paths import KeyPath

#: More is a mistake: a hundred arrays of Slurm's default MaxArraySize.
MAX_POINTS = 100_000
NODES = ("resources", "nodes")
#: After so many draws of known points there are no others.
_MAX_REPEATED_DRAWS = 1000
_SIGNIFICANT_DIGITS = 6


def _own_axis(sweep: records.Table) -> tuple[str, tuple[str, ...]] | None:
    """Return the key of [sweep] with the values of the kind itself, and what they set."""
    match sweep.kind:
        case "strong" | "weak":
            return ("gpus", records.GPUS) if sweep.gpus else ("nodes", NODES)
        case "batch":
            return "batch_sizes", batch_size.argument(sweep)
        case "workers":
            return "workers", keys.argument(sweep.workers_argument)
    return None


def check(sweep: records.Table, problems: table.Problems) -> None:
    """Report what is wrong with the combinations as a whole."""
    own = _own_axis(sweep)
    reserved = {own[1]: "varies it itself"} if own else {}
    if sweep.kind in ("strong", "weak"):
        reserved = dict.fromkeys((records.GPUS, NODES), "varies the size itself")
        reserved[batch_size.argument(sweep)] = "fixes the batch"
    for axis in sweep.axes:
        if axis.path in reserved:
            message = f'cannot be an axis: kind "{sweep.kind}" {reserved[axis.path]}'
            problems.add(axis.at, message)
    if sweep.kind == "random":
        count = sweep.samples or 0
    else:
        count = math.prod(map(len, _blocks(sweep)))
    count = (count + len(sweep.include)) * max(sweep.repeats, 1)
    if count > MAX_POINTS:
        problems.add(("sweep",), f"has {count} points: at most {MAX_POINTS} are allowed")


def combinations(sweep: records.Table, problems: table.Problems) -> list[records.Settings]:
    """Return the settings of each point without repeats."""
    if sweep.kind == "random":
        points = _samples(sweep)
        if len(points) < (sweep.samples or 0):
            problems.add(
                ("sweep", "samples"),
                f"only {len(points)} different points were drawn: request fewer, or use kind "
                '"grid" for all combinations',
            )
    else:
        products = itertools.product(*_blocks(sweep))
        points = [tuple(itertools.chain.from_iterable(parts)) for parts in products]
    kept = points
    for number, entry in enumerate(sweep.exclude):
        at = ("sweep", "exclude", number)
        if not any(_matches(point, entry) for point in points):
            varied = sorted({documents.dotted(s.path) for point in points for s in point})
            message = f"no point has these values; the sweep varies {', '.join(varied)}"
            problems.add(at, message)
        elif not entry:
            problems.add(at, "is empty: it would exclude all points")
        kept = [point for point in kept if not _matches(point, entry)]
    return [*kept, *sweep.include]


def _blocks(sweep: records.Table) -> list[Sequence[records.Settings]]:
    """Return the factors of the product: the kind's own values first, then the axes."""
    if sweep.kind == "list":
        return [sweep.points]
    axes = [_settings(axis.path, axis.values, axis.at) for axis in sweep.axes]
    if sweep.kind == "zip":
        return [[*zip(*axes, strict=False)]]
    if own := _own_axis(sweep):
        key, path = own
        axes = [_settings(path, getattr(sweep, key), ("sweep", key)), *axes]
    return [[(setting,) for setting in axis] for axis in axes]


def _settings(
    path: tuple[str, ...], values: Sequence[jobs.ArgumentValue], at: KeyPath
) -> list[records.Setting]:
    return [
        records.Setting(path=path, value=value, at=(*at, index))
        for index, value in enumerate(values)
    ]


def _samples(sweep: records.Table) -> list[records.Settings]:
    """Draw different points.

    More samples start with the same points, and another axis does not change their values.
    """
    points: dict[str, records.Settings] = {}
    number = repeated = 0
    while len(points) < (sweep.samples or 0) and repeated < _MAX_REPEATED_DRAWS:
        point = tuple(
            records.Setting(path=axis.path, value=_drawn(axis, sweep.seed, number), at=axis.at)
            for axis in sweep.axes
        )
        number += 1
        key = repr([setting.value for setting in point])
        repeated = repeated + 1 if key in points else 0
        points.setdefault(key, point)
    return [*points.values()]


def _drawn(axis: records.Axis, seed: int, number: int) -> jobs.ArgumentValue:
    """Return the value of an axis in a sample; other axes and samples do not affect it.

    Python only guarantees that random.random() stays the same, and exp() differs between C
    libraries in its last digit: hence SHA-256 and rounding.
    """
    text = f"{seed}\n{documents.dotted(axis.path)}\n{number}"
    digest = hashlib.sha256(text.encode()).digest()
    share = (int.from_bytes(digest[:8]) >> 11) / 2**53
    if axis.draw == "choice":
        return axis.values[int(share * len(axis.values))]
    low, high = (float(bound) for bound in axis.values if isinstance(bound, int | float))
    if axis.draw == "integers":
        return int(low) + int(share * (int(high) - int(low) + 1))
    if axis.draw == "uniform":
        real = low + share * (high - low)
    else:
        real = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return min(max(float(f"{real:.{_SIGNIFICANT_DIGITS}g}"), low), high)


def _matches(point: records.Settings, entry: records.Settings) -> bool:
    values = {setting.path: setting.value for setting in point}
    # 1 equals 1.0, but 1 does not equal true.
    return all(
        setting.path in values
        and values[setting.path] == setting.value
        and isinstance(values[setting.path], bool) == isinstance(setting.value, bool)
        for setting in entry
    )
