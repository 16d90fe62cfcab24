"""The figures of a report as data: what is drawn, and its CSV."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal

from orchestrator import scaling
from orchestrator.reports import conclusions, display, records
from orchestrator.text import formats

#: Sites ask for 70 to 80 % before they grant more GPUs.
GUIDE_EFFICIENCY = 0.8
#: Points of a fitted line.
_STEPS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """One line, cloud or stack of bars."""

    label: str
    #: dashed: beyond what was measured; guide: a line to compare with; bars are stacked
    kind: Literal["points", "line", "dashed", "guide", "bars"]
    x: tuple[float, ...]
    y: tuple[float, ...]
    #: ends of the intervals; empty where there are none
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    #: series of one curve have one colour
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
    #: ticks of the x axis: the sizes, or for bars their labels; none: an axis of plain numbers
    sizes: tuple[int, ...]
    bar_labels: tuple[str, ...] = ()
    is_log: bool = False
    is_share: bool = False
    #: the y axis begins there, else below the lowest number
    from_zero: bool = True

    def top(self) -> float:
        """Return the largest number drawn."""
        bars = [series.y for series in self.series if series.kind == "bars"]
        stacked = [math.fsum(heights) for heights in zip(*bars, strict=True)]
        points = [
            value
            for series in self.series
            if series.kind != "bars"
            for value in (*series.y, *series.high)
        ]
        return max([*stacked, *points])


def figures(report: records.Report) -> list[Figure]:
    """Return the figures that the numbers of the report are enough for."""
    made = [_speedup(report), _efficiency(report), _throughput(report)]
    made += [_steps(report)] if any(row.step_seconds for row in _rows(report)) else []
    if any(row.utilisation is not None for row in _rows(report)):
        made.append(_utilisation(report))
    return made


def as_csv(figure: Figure) -> str:
    """Return the numbers of a figure."""
    rows = [["series", "kind", "x", "y", "low", "high"]]
    for series in figure.series:
        for place, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            shown = figure.bar_labels[place] if series.kind == "bars" else f"{x:.10g}"
            ends = [
                f"{values[place]:.10g}" if values else "" for values in (series.low, series.high)
            ]
            rows.append([series.label, series.kind, shown, f"{y:.10g}", *ends])
    return formats.csv_text(rows)


def _rows(report: records.Report) -> list[records.Row]:
    return [row for curve in report.curves for row in curve.rows]


def _sizes(report: records.Report) -> tuple[int, ...]:
    return tuple(sorted({row.point.gpus for row in _rows(report)}))


def _points(
    curve: records.Curve, place: int, of: Callable[[records.Row], scaling.Estimate]
) -> Series:
    estimates = [of(row) for row in curve.rows]
    has_ends = any(one.low is not None for one in estimates)
    return Series(
        label=curve.name or "measured",
        kind="points",
        x=tuple(float(row.point.gpus) for row in curve.rows),
        y=tuple(one.value for one in estimates),
        low=tuple(one.value if one.low is None else one.low for one in estimates)
        if has_ends
        else (),
        high=tuple(one.value if one.high is None else one.high for one in estimates)
        if has_ends
        else (),
        colour=place,
    )


def _speedup(report: records.Report) -> Figure:
    sizes = _sizes(report)
    series = [
        _points(curve, place, lambda row: row.point.speedup)
        for place, curve in enumerate(report.curves)
    ]
    for base in sorted({curve.rows[0].point.gpus for curve in report.curves}):
        series.append(
            Series(
                label="ideal"
                if base == sizes[0]
                else f"ideal from {display.size(base, report.unit)}",
                kind="guide",
                x=(float(base), float(sizes[-1])),
                y=(1.0, sizes[-1] / base),
            )
        )
    return Figure(
        name="speedup",
        title=f"{report.title}: speedup",
        x_label=display.plural(report.unit),
        y_label="speedup",
        series=tuple(series),
        sizes=sizes,
        is_log=True,
    )


def _efficiency(report: records.Report) -> Figure:
    sizes = _sizes(report)
    series = [
        _points(curve, place, lambda row: row.point.efficiency)
        for place, curve in enumerate(report.curves)
    ]
    guide = Series(
        label=display.share(GUIDE_EFFICIENCY),
        kind="guide",
        x=(float(sizes[0]), float(sizes[-1])),
        y=(GUIDE_EFFICIENCY, GUIDE_EFFICIENCY),
    )
    return Figure(
        name="efficiency",
        title=f"{report.title}: efficiency",
        x_label=display.plural(report.unit),
        y_label="efficiency",
        series=(*series, guide),
        sizes=sizes,
        is_share=True,
    )


def _throughput(report: records.Report) -> Figure:
    series = []
    for place, curve in enumerate(report.curves):
        series.append(_points(curve, place, lambda row: row.point.throughput))
        fit = conclusions.best_fit(curve)
        if fit is None:
            continue
        first, last = float(fit.sizes[0]), float(fit.sizes[-1])
        law = "Amdahl" if fit.law == "amdahl" else "USL"
        label = f"{law} {curve.name}".strip()
        ends = ((label, first, last), (f"{label}, extrapolated", last, scaling.fits.REACH * last))
        for kind, (name, begin, end) in zip(("line", "dashed"), ends, strict=True):
            x = _between(begin, end)
            y = tuple(fit.throughput(one) for one in x)
            made: Literal["line", "dashed"] = "line" if kind == "line" else "dashed"
            series.append(Series(label=name, kind=made, x=x, y=y, colour=place))
    return Figure(
        name="throughput",
        title=f"{report.title}: throughput",
        x_label=display.plural(report.unit),
        y_label="samples a second",
        series=tuple(series),
        sizes=_sizes(report),
        is_log=True,
    )


def _between(begin: float, end: float) -> tuple[float, ...]:
    ratio = end / begin
    return tuple(begin * ratio ** (step / _STEPS) for step in range(_STEPS + 1))


def _bar_labels(
    report: records.Report, rows: Sequence[tuple[records.Curve, records.Row]]
) -> tuple[str, ...]:
    return tuple(
        f"{row.point.gpus}\n{curve.name}" if curve.name and not row.shared else f"{row.point.gpus}"
        for curve, row in rows
    )


def _barred(
    report: records.Report, wanted: Callable[[records.Row], bool]
) -> list[tuple[records.Curve, records.Row]]:
    found: list[tuple[records.Curve, records.Row]] = []
    for curve in report.curves:
        for row in curve.rows:
            is_new = not any(row.shared and row == other for _, other in found)
            if wanted(row) and is_new:
                found.append((curve, row))
    return found


def _steps(report: records.Report) -> Figure:
    rows = _barred(report, lambda row: bool(row.step_seconds))
    parts = dict.fromkeys(part for _, row in rows for part in row.step_seconds)
    series = [
        Series(
            label=part,
            kind="bars",
            x=tuple(float(place) for place in range(len(rows))),
            y=tuple(row.step_seconds.get(part, 0.0) * 1000.0 for _, row in rows),
            colour=place,
        )
        for place, part in enumerate(parts)
    ]
    return Figure(
        name="steps",
        title=f"{report.title}: what a step's time goes to",
        x_label=display.plural(report.unit),
        y_label="milliseconds a step",
        series=tuple(series),
        sizes=_sizes(report),
        bar_labels=_bar_labels(report, rows),
    )


def _utilisation(report: records.Report) -> Figure:
    rows = _barred(report, lambda row: row.utilisation is not None)
    series = Series(
        label="utilisation",
        kind="bars",
        x=tuple(float(place) for place in range(len(rows))),
        y=tuple(row.utilisation or 0.0 for _, row in rows),
    )
    return Figure(
        name="utilisation",
        title=f"{report.title}: how busy the GPUs were",
        x_label=display.plural(report.unit),
        y_label="utilisation",
        series=(series,),
        sizes=_sizes(report),
        bar_labels=_bar_labels(report, rows),
        is_share=True,
    )
