"""The values of jobs that continue one another as one run, and what of it was exported before."""

from __future__ import annotations

import array
import dataclasses
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from orchestrator import metrics

#: Where a value belongs: its step, else its epoch, else its number.
Axis = Literal["step", "epoch", "count"]
#: name, unit, rank, axis
_Key: TypeAlias = tuple[str, str, int | None, Axis]

#: The positions of others.
_POSITIONS = ("step", "epoch")
#: What MLflow does not accept in a name.
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_\-. /:]")
_MAX_NAME = 200


class Segment(NamedTuple):
    """Consecutive values of one attempt."""

    job_row: int
    attempt: int
    size: int
    #: of their steps and values
    checksum: int


@dataclasses.dataclass(kw_only=True)
class Series:
    """One metric of one rank. Values with the same index belong together."""

    #: unique in its run
    name: str
    axis: Axis
    steps: array.array[int] = dataclasses.field(default_factory=lambda: array.array("q"))
    #: seconds since 1970
    times: metrics.Numbers = dataclasses.field(default_factory=lambda: array.array("d"))
    values: metrics.Numbers = dataclasses.field(default_factory=lambda: array.array("d"))
    #: job and attempt of each part, and the index of its first value
    starts: list[tuple[tuple[int, int], int]] = dataclasses.field(default_factory=list)

    def add(self, run: tuple[int, int], step: int, time: float, value: float) -> None:
        """Append a value; the first one of an attempt replaces those from its step on."""
        if not self.starts or self.starts[-1][0] != run:
            if self.axis != "count":
                while self.steps and self.steps[-1] >= step:
                    del self.steps[-1], self.times[-1], self.values[-1]
                while self.starts and self.starts[-1][1] >= len(self.steps):
                    self.starts.pop()
            self.starts.append((run, len(self.steps)))
        self.steps.append(step)
        self.times.append(time)
        self.values.append(value)

    def segments(self) -> list[Segment]:
        ends = [*(start for _, start in self.starts[1:]), len(self.steps)]
        return [
            Segment(*run, end - start, self._checksum(start, end))
            for (run, start), end in zip(self.starts, ends, strict=True)
        ]

    def exported(self, known: Sequence[Segment]) -> int:
        """Return how many of the first values are those that were exported: `known`."""
        kept = 0
        for before, now in zip(known, self.segments(), strict=False):
            if before[:2] != now[:2]:
                break
            count = min(before.size, now.size)
            # What an attempt reported only grows, unless its log was parsed again.
            if count == before.size and self._checksum(kept, kept + count) != before.checksum:
                break
            kept += count
            if count < before.size or count < now.size:
                break
        return kept

    def _checksum(self, start: int, end: int) -> int:
        return zlib.crc32(self.values[start:end].tobytes(), zlib.crc32(self.steps[start:end]))


def of_chain(
    rows: Iterable[metrics.MetricRow], order: Mapping[int, int], unknown_time: float
) -> list[Series]:
    """Return the series of a run.

    rows: of each attempt in the order of reading. order: of the jobs, by row. unknown_time: of
    values whose lines have no time, in seconds since 1970.
    """
    found: dict[_Key, Series] = {}
    names: set[str] = set()
    for row in sorted(rows, key=lambda row: (order[row.job_row], row.attempt, row.id)):
        if row.name in _POSITIONS:
            continue
        position = row.epoch if row.step is None else row.step
        axis: Axis = "count" if position is None else "epoch" if row.step is None else "step"
        key = row.name, row.unit, row.rank, axis
        series = found.get(key)
        if series is None:
            name = _unique_name(key, names)
            names.add(name)
            series = found[key] = Series(name=name, axis=axis)
        # The columns of the database have no zone, and are in UTC.
        time = unknown_time if row.time is None else _seconds(row.time)
        value = float("nan") if row.value is None else row.value
        step = len(series.steps) if position is None else position
        series.add((row.job_row, row.attempt), step, time, value)
    return list(found.values())


def _unique_name(key: _Key, taken: set[str]) -> str:
    """Return the name of the metric; if it is taken, with what distinguishes the series."""
    name, unit, rank, axis = key
    parts = [name] if not rank else [name, f"rank {rank}"]
    qualifiers = [f"by {axis}", unit, "" if rank is None else f"rank {rank}"]
    for added in ("", *filter(None, qualifiers), "/".join(filter(None, qualifiers))):
        text = _accepted("/".join([*parts, added]))
        if text not in taken:
            return text
    numbered = (f"{_accepted(name)} {number}" for number in range(2, len(taken) + 3))
    return next(text for text in numbered if text not in taken)


def _accepted(name: str) -> str:
    """Return a name that MLflow accepts: as a path, it has to be the shortest one to its place."""
    parts = _FORBIDDEN.sub("_", name).split("/")
    # Dots alone would be this folder or its parent.
    parts = [part if part.strip(".") else "_" * len(part) for part in parts]
    return "/".join(filter(None, parts))[:_MAX_NAME].rstrip("/")


def _seconds(time: object) -> float:
    import datetime

    assert isinstance(time, datetime.datetime)
    return time.replace(tzinfo=datetime.UTC).timestamp()
