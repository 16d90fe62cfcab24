"""The figures of a report as data, and as CSV."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
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
    label: str
    #: dashed: extrapolated; guide: a line to compare with; bars are stacked
    kind: Literal["points", "line", "dashed", "guide", "bars"]
    x: Sequence[float]
    y: Sequence[float]
    #: ends of the confidence intervals; empty: none
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    #: index of the colour
    colour: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    #: of its files
    name: str
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    #: ticks of the x axis; empty: an axis of plain numbers
    sizes: Sequence[int]
    #: labels of x = 0, 1, ... in place of numbers
    x_labels: Sequence[str] = ()
    #: the only ticks of an axis of numbers; empty: chosen by their range
    ticks: Sequence[float] = ()
    #: the x axis is logarithmic; `is_log` with `sizes`: both axes
    is_log_x: bool = False
    is_log: bool = False
    is_share: bool = False
    #: the y axis starts at zero
    from_zero: bool = True

    def top(self) -> float:
        """Return the largest number drawn."""
        bars = [series.y for series in self.series if series.kind == "bars"]
        stacked = [math.fsum(heights) for heights in zip(*bars, strict=True)]
        lines = [series for series in self.series if series.kind != "bars"]
        return max([*stacked, *(y for series in lines for y in (*series.y, *series.high))])


def figures(report: records.Report) -> list[Figure]:
    """Return the figures for which the report has numbers."""
    curves = report.curves
    sizes = sorted({row.point.size for curve in curves for row in curve.rows})
    ends = (sizes[0], sizes[-1])

    def figure(
        name: str, series: Sequence[Series], title: str = "", y_label: str = "", **options: Any
    ) -> Figure:
        return Figure(
            name=name,
            title=f"{report.title}: {title or name}",
            x_label=display.plural(report.unit),
            y_label=y_label or name,
            series=series,
            sizes=sizes,
            **options,
        )

    speedups = _points(curves, lambda point: point.speedup)
    for base in sorted({curve.rows[0].point.size for curve in curves}):
        label = "ideal" if base == ends[0] else f"ideal from {display.size(base, report.unit)}"
        y = (1.0, ends[1] / base)
        speedups.append(Series(label=label, kind="guide", x=(base, ends[1]), y=y))
    efficiencies = _points(curves, lambda point: point.efficiency)
    label, y = display.share(GUIDE_EFFICIENCY), (GUIDE_EFFICIENCY, GUIDE_EFFICIENCY)
    efficiencies.append(Series(label=label, kind="guide", x=ends, y=y))
    made = [
        figure("speedup", speedups, is_log=True),
        figure("efficiency", efficiencies, is_share=True),
        figure("throughput", _throughputs(curves), y_label="samples/s", is_log=True),
    ]
    rows = tables.rows(report)
    if steps := [row for row in rows if row.step_seconds]:
        parts = dict.fromkeys(part for row in steps for part in row.step_seconds)
        bars = [
            _bars(part, [row.step_seconds.get(part, 0.0) * 1000.0 for row in steps], index)
            for index, part in enumerate(parts)
        ]
        labels = _bar_labels(steps)
        made.append(figure("steps", bars, "time per step", "ms per step", x_labels=labels))
    if used := [row for row in rows if row.median("utilisation") is not None]:
        bars = [_bars("utilisation", [row.median("utilisation") or 0.0 for row in used])]
        title, labels = "GPU utilisation", _bar_labels(used)
        made.append(figure("utilisation", bars, title, x_labels=labels, is_share=True))
    return made


def as_csv(figure: Figure) -> str:
    rows = [["series", "kind", "x", "y", "low", "high"]]
    for series in figure.series:
        for index, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            label = figure.x_labels[index] if series.kind == "bars" else f"{x:.10g}"
            ends = [
                f"{values[index]:.10g}" if values else "" for values in (series.low, series.high)
            ]
            rows.append([series.label, series.kind, label, f"{y:.10g}", *ends])
    return formats.csv_text(rows)


def _points(
    curves: Sequence[records.Curve], value: Callable[[scaling.Point], scaling.Estimate]
) -> list[Series]:
    """Return the points of each curve, with confidence intervals where there are any."""
    series = []
    for index, curve in enumerate(curves):
        estimates = [value(row.point) for row in curve.rows]
        has_ends = any(e.low is not None for e in estimates)
        series.append(
            Series(
                label=curve.name or "measured",
                kind="points",
                x=[row.point.size for row in curve.rows],
                y=[e.value for e in estimates],
                low=[e.value if e.low is None else e.low for e in estimates] if has_ends else (),
                high=[e.value if e.high is None else e.high for e in estimates] if has_ends else (),
                colour=index,
            )
        )
    return series


def _throughputs(curves: Sequence[records.Curve]) -> list[Series]:
    """Return the points of each curve with its fit."""
    series = []
    points = _points(curves, lambda point: point.throughput)
    for curve, measured in zip(curves, points, strict=True):
        series.append(measured)
        fit = conclusions.best_fit(curve)
        if fit is None:
            continue
        label = f"{'Amdahl' if fit.law == 'amdahl' else 'USL'} {curve.name}".strip()
        last = fit.sizes[-1]
        x, y = _line(fit, fit.sizes[0], last)
        series.append(Series(label=label, kind="line", x=x, y=y, colour=measured.colour))
        if fit.rejected:
            series[-1] = dataclasses.replace(series[-1], label=f"{label} (rejected)")
            continue
        x, y = _line(fit, last, fit.largest)
        label = f"{label}, extrapolated"
        series.append(Series(label=label, kind="dashed", x=x, y=y, colour=measured.colour))
    return series


def _line(fit: scaling.Fit, start: float, end: float) -> tuple[list[float], list[float]]:
    x = [start * (end / start) ** (step / _SEGMENTS) for step in range(_SEGMENTS + 1)]
    return x, [*map(fit.throughput, x)]


def _bars(label: str, heights: Sequence[float], colour: int = 0) -> Series:
    return Series(label=label, kind="bars", x=range(len(heights)), y=heights, colour=colour)


def _bar_labels(rows: Sequence[records.Row]) -> list[str]:
    return [
        f"{row.point.size}\n{row.curve}" if row.curve and not row.shared else f"{row.point.size}"
        for row in rows
    ]
