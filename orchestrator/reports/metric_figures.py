"""Metrics over steps, epochs or time as figures: one per metric, with a line per job and rank."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from orchestrator import metrics
from orchestrator.reports import figures

Axis = Literal["step", "epoch", "time", "number"]
_LABELS = {
    "step": "step",
    "epoch": "epoch",
    "time": "hours since the first value",
    "number": "number of the value",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """The values of one metric of one job or rank."""

    name: str
    unit: str
    #: in the legend
    label: str
    points: Sequence[metrics.MetricRow]


def build(lines: Sequence[Line], axis: Axis | None = None) -> list[figures.Figure]:
    """Return a figure for each metric and unit; values that are not finite leave gaps.

    The default axis is the first that all points have: step, epoch, number.
    """
    made = []
    for name, unit in dict.fromkeys((line.name, line.unit) for line in lines):
        own = [line for line in lines if (line.name, line.unit) == (name, unit)]
        own_axis = axis or _default_axis(own)
        series = [_series(line, own_axis, index) for index, line in enumerate(own)]
        if drawn := [line for line in series if line.x]:
            made.append(
                figures.Figure(
                    name=name,
                    title=name,
                    x_label=_LABELS[own_axis],
                    y_label=f"{name} ({unit})" if unit else name,
                    series=drawn,
                    sizes=(),
                    from_zero=False,
                )
            )
    return made


def _default_axis(lines: Sequence[Line]) -> Axis:
    points = [point for line in lines for point in line.points]
    if all(point.step is not None for point in points):
        return "step"
    return "epoch" if all(point.epoch is not None for point in points) else "number"


def _series(line: Line, axis: Axis, colour: int) -> figures.Series:
    # matplotlib leaves a gap at a NaN.
    values = [
        (x, math.nan if point.value is None or not math.isfinite(point.value) else point.value)
        for x, point in zip(_positions(line.points, axis), line.points, strict=True)
        if x is not None
    ]
    if all(math.isnan(y) for _, y in values):
        values = []
    return figures.Series(
        label=line.label,
        kind="line" if len(values) > 1 else "points",
        x=[x for x, _ in values],
        y=[y for _, y in values],
        colour=colour,
    )


def _positions(points: Sequence[metrics.MetricRow], axis: Axis) -> Sequence[float | None]:
    if axis == "number":
        return range(1, len(points) + 1)
    values = [getattr(point, axis) for point in points]
    if axis != "time":
        return values
    first = min((time for time in values if time is not None), default=None)
    return [None if time is None else (time - first).total_seconds() / 3600.0 for time in values]
