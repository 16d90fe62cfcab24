"""The figures of a report as data, and as CSV."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from orchestrator import scaling
from orchestrator.reports import conclusions, display, records, tables
from orchestrator.text import formats

#: Sites ask for 70 to 80 % before they grant more GPUs.
GUIDE_EFFICIENCY = 0.8
#: Segments of a fitted line.
_SEGMENTS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """One line, set of points, or stack of bars."""

    label: str
    #: dashed: extrapolated; guide: a line to compare with; bars are stacked
    kind: Literal["points", "line", "dashed", "guide", "bars"]
    x: tuple[float, ...]
    y: tuple[float, ...]
    #: ends of the confidence intervals; empty: none
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    #: index of the colour
    colour: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure."""

    #: of its files
    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    #: ticks of the x axis; empty: an axis of plain numbers
    sizes: tuple[int, ...]
    #: labels of bars, in place of `sizes`
    bar_labels: tuple[str, ...] = ()
    is_log: bool = False
    is_share: bool = False
    #: the y axis starts at zero
    from_zero: bool = True

    def top(self) -> float:
        """Return the largest number drawn."""
        bars = [series.y for series in self.series if series.kind == "bars"]
        stacked = [math.fsum(heights) for heights in zip(*bars, strict=True)]
        others = [series for series in self.series if series.kind != "bars"]
        return max([*stacked, *(y for series in others for y in (*series.y, *series.high))])


def figures(report: records.Report) -> list[Figure]:
    """Return the figures for which the report has numbers."""
    made = [_speedup(report), _efficiency(report), _throughput(report)]
    steps = [line for line in tables.lines(report) if line.row.step_seconds]
    if steps:
        parts = dict.fromkeys(part for line in steps for part in line.row.step_seconds)
        milliseconds = {
            part: [line.row.step_seconds.get(part, 0.0) * 1000.0 for line in steps]
            for part in parts
        }
        made.append(_bars(report, "steps", ("time per step", "ms per step"), steps, milliseconds))
    used = [line for line in tables.lines(report) if line.row.median("utilisation") is not None]
    if used:
        shares = {"utilisation": [line.row.median("utilisation") or 0.0 for line in used]}
        labels = ("GPU utilisation", "utilisation")
        made.append(_bars(report, "utilisation", labels, used, shares, is_share=True))
    return made


def as_csv(figure: Figure) -> str:
    """Return the numbers of a figure."""
    rows = [["series", "kind", "x", "y", "low", "high"]]
    for series in figure.series:
        for index, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            label = figure.bar_labels[index] if series.kind == "bars" else f"{x:.10g}"
            ends = [
                f"{values[index]:.10g}" if values else "" for values in (series.low, series.high)
            ]
            rows.append([series.label, series.kind, label, f"{y:.10g}", *ends])
    return formats.csv_text(rows)


def _figure(
    report: records.Report,
    name: str,
    labels: tuple[str, str],
    series: Sequence[Series],
    **options: Any,
) -> Figure:
    """Return a figure over the sizes; `labels`: of the figure and of its y axis."""
    sizes = {row.point.size for curve in report.curves for row in curve.rows}
    return Figure(
        name=name,
        title=f"{report.title}: {labels[0]}",
        x_label=display.plural(report.unit),
        y_label=labels[1],
        series=tuple(series),
        sizes=tuple(sorted(sizes)),
        **options,
    )


def _points(
    report: records.Report, value: Callable[[scaling.Point], scaling.Estimate]
) -> list[Series]:
    """Return the points of each curve, with confidence intervals where there are any."""
    series = []
    for index, curve in enumerate(report.curves):
        estimates = [value(row.point) for row in curve.rows]
        points = Series(
            label=curve.name or "measured",
            kind="points",
            x=tuple(float(row.point.size) for row in curve.rows),
            y=tuple(e.value for e in estimates),
            colour=index,
        )
        if any(e.low is not None for e in estimates):
            low = tuple(e.value if e.low is None else e.low for e in estimates)
            high = tuple(e.value if e.high is None else e.high for e in estimates)
            points = dataclasses.replace(points, low=low, high=high)
        series.append(points)
    return series


def _guide(label: str, x: tuple[int, int], y: tuple[float, float]) -> Series:
    return Series(label=label, kind="guide", x=(float(x[0]), float(x[1])), y=y)


def _first_and_last(report: records.Report) -> tuple[int, int]:
    sizes = [row.point.size for curve in report.curves for row in curve.rows]
    return min(sizes), max(sizes)


def _speedup(report: records.Report) -> Figure:
    series = _points(report, lambda point: point.speedup)
    first, last = _first_and_last(report)
    for base in sorted({curve.rows[0].point.size for curve in report.curves}):
        label = "ideal" if base == first else f"ideal from {display.size(base, report.unit)}"
        series.append(_guide(label, (base, last), (1.0, last / base)))
    return _figure(report, "speedup", ("speedup", "speedup"), series, is_log=True)


def _efficiency(report: records.Report) -> Figure:
    series = _points(report, lambda point: point.efficiency)
    label = display.share(GUIDE_EFFICIENCY)
    series.append(_guide(label, _first_and_last(report), (GUIDE_EFFICIENCY,) * 2))
    return _figure(report, "efficiency", ("efficiency", "efficiency"), series, is_share=True)


def _throughput(report: records.Report) -> Figure:
    series = []
    points = _points(report, lambda point: point.throughput)
    for index, (curve, measured) in enumerate(zip(report.curves, points, strict=True)):
        series.append(measured)
        fit = conclusions.best_fit(curve)
        if fit is not None:
            first, last = float(fit.sizes[0]), float(fit.sizes[-1])
            label = f"{'Amdahl' if fit.law == 'amdahl' else 'USL'} {curve.name}".strip()
            series.append(_line(fit, label, "line", (first, last), index))
            label = f"{label}, extrapolated"
            series.append(_line(fit, label, "dashed", (last, fit.largest), index))
    return _figure(report, "throughput", ("throughput", "samples/s"), series, is_log=True)


def _line(
    fit: scaling.Fit,
    label: str,
    kind: Literal["line", "dashed"],
    ends: tuple[float, float],
    colour: int,
) -> Series:
    ratio = ends[1] / ends[0]
    x = tuple(ends[0] * ratio ** (step / _SEGMENTS) for step in range(_SEGMENTS + 1))
    return Series(label=label, kind=kind, x=x, y=tuple(map(fit.throughput, x)), colour=colour)


def _bars(
    report: records.Report,
    name: str,
    labels: tuple[str, str],
    lines: Sequence[tables.Line],
    parts: Mapping[str, Sequence[float]],
    **options: Any,
) -> Figure:
    """Return stacked bars, one for each line of the table; `parts`: heights by label."""
    series = [
        Series(
            label=part,
            kind="bars",
            x=tuple(map(float, range(len(lines)))),
            y=tuple(heights),
            colour=index,
        )
        for index, (part, heights) in enumerate(parts.items())
    ]
    bar_labels = tuple(
        f"{line.row.point.size}\n{line.curve.name}"
        if line.curve.name and not line.row.shared
        else f"{line.row.point.size}"
        for line in lines
    )
    return _figure(report, name, labels, series, bar_labels=bar_labels, **options)
