"""Figures of a report as shapes for SVG."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from orchestrator.reports import figures
from orchestrator.rows import row_values

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 22, 12, 40
#: Colours in style.css.
COLOURS = 8
_TICKS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A mark of a plot."""

    #: polyline, bar, point or interval
    kind: str
    #: class in style.css
    style: str
    #: "x,y x,y" of a polyline; x, y, width and height of a bar; x and y of a point; x, low and high
    #: of an interval
    at: Sequence[float] = ()
    points: str = ""
    title: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure as a template draws it."""

    figure: figures.Figure
    shapes: Sequence[Shape]
    #: position and text
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    #: label, and classes in style.css
    legend: Sequence[tuple[str, str]]


def draw(figure: figures.Figure) -> Plot:
    """Return the shapes of a figure, in px from the upper left corner."""
    bars = [series for series in figure.series if series.kind == "bars"]
    return _bars(figure, bars) if bars else _lines(figure)


def _lines(figure: figures.Figure) -> Plot:
    xs = [x for series in figure.series for x in series.x]
    ys = [y for series in figure.series for y in (*series.y, *series.low, *series.high)]
    is_log_x = bool(figure.sizes) or figure.is_log_x
    known = [y for y in ys if math.isfinite(y) and (y > 0 or not figure.is_log)]
    to_x = _scale(min(xs), max(xs), LEFT, WIDTH - RIGHT, is_log=is_log_x)
    low = min(known) if figure.is_log or not figure.from_zero else min(0.0, *known)
    to_y = _scale(low, max(known), HEIGHT - BOTTOM, TOP, is_log=figure.is_log)
    shapes: list[Shape] = []
    legend = []
    for series in figure.series:
        colour = "guide" if series.kind == "guide" else f"k{series.colour % COLOURS}"
        style = f"{colour} {series.kind}"
        legend.append((series.label, style))
        places = [
            (to_x(x), to_y(y))
            for x, y in zip(series.x, series.y, strict=True)
            if math.isfinite(y) and (y > 0 or not figure.is_log)
        ]
        if series.kind != "points":
            points = " ".join(f"{x},{y}" for x, y in places)
            shapes.append(Shape(kind="polyline", style=style, points=points))
            continue
        for x, y in zip(series.x, series.y, strict=True):
            where = figure.x_labels[int(x)] if figure.x_labels else f"{x:g}"
            title = f"{series.label}: {where}, {_text(y, figure)}"
            shapes.append(Shape(kind="point", style=style, at=(to_x(x), to_y(y)), title=title))
        for x, start, end in zip(series.x, series.low, series.high, strict=False):
            at = to_x(x), to_y(max(start, low) if figure.is_log else start), to_y(end)
            shapes.append(Shape(kind="interval", style=style, at=at))
    sizes = figure.sizes or figure.ticks or _nice(min(xs), max(xs))
    return Plot(
        figure=figure,
        shapes=shapes,
        x_ticks=[
            (to_x(size), figure.x_labels[int(size)] if figure.x_labels else f"{size:g}")
            for size in _spread(sizes)
        ],
        y_ticks=[
            (to_y(y), _text(y, figure))
            for y in (_powers if figure.is_log else _nice)(low, max(known))
        ],
        legend=legend,
    )


def _bars(figure: figures.Figure, bars: Sequence[figures.Series]) -> Plot:
    """Stack the bars of several series."""
    count = len(figure.x_labels)
    to_y = _scale(0.0, figure.top() or 1.0, HEIGHT - BOTTOM, TOP, is_log=False)
    gap = (WIDTH - LEFT - RIGHT) / max(count, 1)
    shapes, tops = [], [0.0] * count
    for series in bars:
        style = f"k{series.colour % COLOURS} bars"
        for index, value in enumerate(series.y):
            begin, end = to_y(tops[index]), to_y(tops[index] + value)
            at = (round(LEFT + (index + 0.2) * gap, 1), end, round(0.6 * gap, 1), begin - end)
            title = f"{series.label}, {figure.x_labels[index]}: {_text(value, figure)}"
            shapes.append(Shape(kind="bar", style=style, at=at, title=title))
            tops[index] += value
    return Plot(
        figure=figure,
        shapes=shapes,
        x_ticks=[
            (round(LEFT + (index + 0.5) * gap, 1), label.replace("\n", " "))
            for index, label in enumerate(figure.x_labels)
        ],
        y_ticks=[(to_y(y), _text(y, figure)) for y in _nice(0.0, figure.top() or 1.0)],
        legend=[(each.label, f"k{each.colour % COLOURS} bars") for each in bars],
    )


def _text(value: float, figure: figures.Figure) -> str:
    return f"{100 * value:.0f} %" if figure.is_share else row_values.number(value)


def _scale(
    low: float, high: float, begin: float, end: float, *, is_log: bool
) -> Callable[[float], float]:
    if is_log:
        low, high = math.log(low), math.log(high)
    span = high - low

    def scaled(value: float) -> float:
        at = math.log(value) if is_log else value
        share = 0.5 if not span else (at - low) / span
        return round(begin + share * (end - begin), 1)

    return scaled


def _nice(low: float, high: float) -> list[float]:
    """Return round numbers from `low` to `high`."""
    if high <= low:
        return [low]
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Return 1, 2, 5, 10, ... from `low` to `high`."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    numbers = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
    inside = [number for number in numbers if low <= number <= high * 1.001]
    return inside if len(inside) <= 2 * _TICKS else inside[::3]


def _spread(sizes: Sequence[float]) -> Sequence[float]:
    """Return at most as many sizes as have room."""
    step = -(-len(sizes) // 10)
    return sizes[::step]
