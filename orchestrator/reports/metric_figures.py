"""Numbers over steps, epochs or time as figures: one a name, with a line a job and rank."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from orchestrator.reports import figures

Axis = Literal["step", "epoch", "time", "number"]
_LABELS = {
    "step": "step",
    "epoch": "epoch",
    "time": "hours since its first number",
    "number": "number of its line, from 1",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One number of a line."""

    value: float
    step: int | None
    epoch: int | None
    #: seconds since 1970
    time_seconds: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """The numbers of one name of one job, or of one of its ranks."""

    name: str
    unit: str
    #: the job, as the legend names it
    label: str
    points: Sequence[Point]


def drawn(lines: Sequence[Line], axis: Axis | None = None) -> list[figures.Figure]:
    """Return a figure for each name and unit; numbers that are none leave gaps.

    The axis of each, unless given, is the first that all its numbers have: step, epoch, the order.
    """
    found = []
    for name, unit in dict.fromkeys((line.name, line.unit) for line in lines):
        mine = [line for line in lines if (line.name, line.unit) == (name, unit)]
        below = axis or _axis(mine)
        series = [_series(line, below, place) for place, line in enumerate(mine)]
        if any(one.x for one in series):
            found.append(
                figures.Figure(
                    name=name,
                    title=name,
                    x_label=_LABELS[below],
                    y_label=f"{name} ({unit})" if unit else name,
                    series=tuple(one for one in series if one.x),
                    sizes=(),
                    from_zero=False,
                )
            )
    return found


def _axis(lines: Sequence[Line]) -> Axis:
    points = [point for line in lines for point in line.points]
    if all(point.step is not None for point in points):
        return "step"
    return "epoch" if all(point.epoch is not None for point in points) else "number"


def _series(line: Line, axis: Axis, place: int) -> figures.Series:
    # matplotlib leaves a gap at a NaN; what has no place on the axis is left out.
    placed = [(x, point.value) for x, point in _placed(line.points, axis) if x is not None]
    if any(math.isfinite(value) for _, value in placed):
        finite = [(x, y if math.isfinite(y) else math.nan) for x, y in placed]
    else:
        finite = []
    return figures.Series(
        label=line.label,
        kind="line" if len(finite) > 1 else "points",
        x=tuple(x for x, _ in finite),
        y=tuple(y for _, y in finite),
        colour=place,
    )


def _placed(points: Sequence[Point], axis: Axis) -> list[tuple[float | None, Point]]:
    if axis == "number":
        return [(float(number), point) for number, point in enumerate(points, start=1)]
    if axis == "time":
        times = [point.time_seconds for point in points if point.time_seconds is not None]
        first = min(times, default=0.0)
        return [
            (None if point.time_seconds is None else (point.time_seconds - first) / 3600.0, point)
            for point in points
        ]
    of = (point.step if axis == "step" else point.epoch for point in points)
    return [
        (None if at is None else float(at), point) for at, point in zip(of, points, strict=True)
    ]
