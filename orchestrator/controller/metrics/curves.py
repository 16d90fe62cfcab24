"""Metrics of jobs as curves, kept in memory: only new lines are read from the database."""

from __future__ import annotations

import array
import bisect
import dataclasses
import datetime
import math
import threading
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

from orchestrator import metrics
from orchestrator.controller.session import contexts

Axis = Literal["step", "epoch", "time"]
AXES: tuple[Axis, ...] = get_args(Axis)
#: name and unit
Key = tuple[str, str]
#: Their curves would be straight lines.
_POSITIONS = ("step", "epoch")
#: Points in memory, of 16 bytes each.
_MAX_POINTS = 8_000_000


#: version, whether all values are finite, and their extent
_Facts: TypeAlias = tuple[int, bool, tuple[float, float] | None]


def _numbers() -> metrics.Numbers:
    return array.array("d")


@dataclasses.dataclass
class Curve:
    """One metric of one rank, over the jobs that continue one another."""

    rank: int | None
    #: step, epoch, or seconds since 1970; without these the number of the value
    x: metrics.Numbers = dataclasses.field(default_factory=_numbers)
    y: metrics.Numbers = dataclasses.field(default_factory=_numbers)
    #: job and attempt of the last point
    run: tuple[int, int] = (0, 0)
    #: grows with each change
    version: int = 0
    #: of the points at a version: another thread may add some meanwhile
    facts: _Facts = (0, True, None)

    def add(self, run: tuple[int, int], x: metrics.Numbers | None, y: metrics.Numbers) -> None:
        """Append points; without x at the numbers of the values.

        A new attempt replaces what an earlier one did beyond its first step.
        """
        first = len(self.x)
        positions = array.array("d", range(first, first + len(y))) if x is None else x
        if run != self.run and positions:
            self.run = run
            kept = bisect.bisect_left(self.x, positions[0])
            del self.x[kept:], self.y[kept:]
        self.x += positions
        self.y += y
        self.version += 1

    @property
    def last(self) -> float:
        return self.y[-1]

    @property
    def is_finite(self) -> bool:
        return self._facts()[1]

    @property
    def extent(self) -> tuple[float, float] | None:
        """The lowest and the highest finite value."""
        return self._facts()[2]

    def _facts(self) -> _Facts:
        version = self.version
        if self.facts[0] != version:
            is_finite = math.isfinite(sum(self.y))
            values = self.y if is_finite else [*filter(math.isfinite, self.y)]
            self.facts = version, is_finite, (min(values), max(values)) if values else None
        return self.facts

    def first_not_finite(self) -> float | None:
        """Return the position of the first value that is NaN or infinite."""
        if self.is_finite:
            return None
        return next((x for x, y in zip(self.x, self.y, strict=True) if not math.isfinite(y)), None)


@dataclasses.dataclass
class _Loaded:
    #: of the newest line that was read
    line: int = 0
    curves: dict[Key, dict[int | None, Curve]] = dataclasses.field(default_factory=dict)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def points(self) -> int:
        return sum(len(curve.x) for ranks in self.curves.values() for curve in ranks.values())


class Cache:
    def __init__(self) -> None:
        #: by the rows of a chain, and the axis; the last ones were used last
        self._loaded: dict[tuple[tuple[int, ...], Axis], _Loaded] = {}
        self._lock = threading.Lock()

    def of(
        self, context: contexts.Context, rows: Sequence[int], axis: Axis
    ) -> Mapping[Key, Sequence[Curve]]:
        """Return the curves of jobs that continue one another, in their order, by name and unit."""
        key = tuple(rows), axis
        with self._lock:
            loaded = self._loaded.pop(key, None) or _Loaded()
            self._loaded[key] = loaded
        with loaded.lock:
            self._read(context, rows, axis, loaded)
            result = {
                name: [curve for _, curve in sorted(ranks.items(), key=lambda each: each[0] or 0)]
                for name, ranks in sorted(loaded.curves.items())
            }
        self._forget()
        return result

    def _read(
        self, context: contexts.Context, rows: Sequence[int], axis: Axis, loaded: _Loaded
    ) -> None:
        query = metrics.MetricQuery(job_rows=rows, prefer_jsonl=True)
        with context.store.reading() as work:
            parts = list(work.metrics.lines_by_set(query, axis, loaded.line))
        # In the order of jobs and attempts: each replaces the end of the earlier ones.
        order = {row: place for place, row in enumerate(rows)}
        for part in sorted(parts, key=lambda part: (order[part.job_row], part.attempt)):
            run = part.job_row, part.attempt
            if not part.ids:
                continue
            loaded.line = max(loaded.line, int(part.ids[-1]))
            x = _positions(part)
            for name, values in zip(part.names, part.values, strict=True):
                if name[0] not in _POSITIONS:
                    ranks = loaded.curves.setdefault(name, {})
                    ranks.setdefault(part.rank, Curve(part.rank)).add(run, x, values)

    def _forget(self) -> None:
        with self._lock:
            total = sum(loaded.points for loaded in self._loaded.values())
            while total > _MAX_POINTS and len(self._loaded) > 1:
                total -= self._loaded.pop(next(iter(self._loaded))).points


def _positions(part: metrics.SetLines) -> metrics.Numbers | None:
    """Return the position of each line; None if one has none."""
    if part.times is None:
        has_all = part.positions is not None and not math.isnan(sum(part.positions))
        return part.positions if has_all else None
    known = [time for time in part.times if time is not None]
    if len(known) < len(part.times):
        return None
    return array.array("d", [time.replace(tzinfo=datetime.UTC).timestamp() for time in known])
