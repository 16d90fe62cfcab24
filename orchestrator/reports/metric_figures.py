"""Metrics as figures: over steps, epochs or time, and over the parameters of a sweep."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from orchestrator import metrics
from orchestrator.reports import figures
from orchestrator.sweeps import parameters, results

Axis = Literal["step", "epoch", "time", "number"]
_LABELS = {
    "step": "step",
    "epoch": "epoch",
    "time": "hours since the first value",
    "number": "number of the value",
}
#: An axis whose values are that far apart is logarithmic.
_LOG_RATIO = 8.0
#: Fewer values than this are all marked on the axis.
_MAX_TICKS = 8
#: With more colours, points cannot be told apart.
_MAX_COLOURS = 7


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


def of_sweep(shown: results.Results) -> list[figures.Figure]:
    """Return a figure for each metric and parameter: the results over the values of the parameter.

    Only final rows are drawn. If there are two parameters, the colour shows the other one.
    """
    made = []
    for index, choice in enumerate(shown.choices):
        rows = [row for row in shown.rows if row.is_final and row.cells[index].is_finite]
        unit = next((row.cells[index].unit for row in rows if row.cells[index].unit), "")
        for parameter in shown.columns if rows else ():
            values = {row.number: row.parameters[parameter.key] for row in rows}
            others = [each for each in shown.columns if each is not parameter]
            axis = _axis(list(values.values()))
            series = [
                _results(label, [(axis.position(values[r.number]), r.cells[index]) for r in own], n)
                for n, (label, own) in enumerate(_groups(rows, others).items())
            ]
            made.append(
                figures.Figure(
                    name=f"{choice.label} by {parameter.heading}",
                    title=f"{choice.label} by {parameter.heading}",
                    x_label=parameter.heading,
                    y_label=f"{choice.label} ({unit})" if unit else choice.label,
                    series=series,
                    sizes=(),
                    x_labels=axis.labels,
                    ticks=axis.ticks,
                    is_log_x=axis.is_log,
                    from_zero=False,
                )
            )
    return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ParameterAxis:
    """An axis of numbers, or of labels at 0, 1, ..."""

    labels: Sequence[str] = ()
    ticks: Sequence[float] = ()
    is_log: bool = False

    def position(self, value: parameters.Value) -> float:
        if self.labels:
            return float(self.labels.index(parameters.shown(value)))
        assert isinstance(value, int | float), "an axis without labels is one of numbers"
        return float(value)


def _axis(values: Sequence[parameters.Value]) -> _ParameterAxis:
    # Yes and no are no numbers, although they are integers in Python.
    numbers = [float(value) for value in values if type(value) in (int, float)]  # type: ignore[arg-type]
    if len(numbers) < len(values):
        labels = dict.fromkeys(map(parameters.shown, sorted(values, key=parameters.order)))
        return _ParameterAxis(labels=list(labels))
    ticks = sorted(set(numbers))
    is_log = ticks[0] > 0.0 and ticks[-1] / ticks[0] >= _LOG_RATIO
    return _ParameterAxis(ticks=ticks if len(ticks) <= _MAX_TICKS else (), is_log=is_log)


def _groups(
    rows: Sequence[results.Row], others: Sequence[parameters.Parameter]
) -> dict[str, list[results.Row]]:
    """Return the rows by the value of the only other parameter, or all under one label."""
    groups: dict[str, list[results.Row]] = {}
    if len(others) == 1:
        (other,) = others
        values = {row.number: row.parameters[other.key] for row in rows}
        for row in sorted(rows, key=lambda row: parameters.order(values[row.number])):
            label = f"{other.heading}={parameters.shown(values[row.number])}"
            groups.setdefault(label, []).append(row)
    return groups if 0 < len(groups) <= _MAX_COLOURS else {"points": list(rows)}


def _results(
    label: str, points: Sequence[tuple[float, results.Cell]], colour: int
) -> figures.Series:
    points = sorted(points, key=lambda point: point[0])
    cells = [cell for _, cell in points]
    values = [cell.value or 0.0 for cell in cells]
    ends = any(cell.low is not None for cell in cells)
    low, high = (
        [value if end is None else end for value, end in zip(values, own, strict=True)]
        for own in ([cell.low for cell in cells], [cell.high for cell in cells])
    )
    return figures.Series(
        label=label,
        kind="points",
        x=[position for position, _ in points],
        y=values,
        low=low if ends else (),
        high=high if ends else (),
        colour=colour,
    )
