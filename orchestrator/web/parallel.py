"""Parallel coordinates: a line for each point of a sweep, across an axis for each parameter."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from orchestrator.sweeps import parameters, results

WIDTH, HEIGHT, TOP, BOTTOM, SIDE = 1000, 260, 34, 24, 70
#: More lines cannot be told apart.
MAX_LINES = 500
#: Lines are drawn in so many colours, from the best to the worst.
BANDS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis as drawn, x in px from the left."""

    x: float
    name: str
    #: position and text, from the bottom to the top
    ticks: Sequence[tuple[float, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """A point of the sweep as drawn: "x,y x,y" in px."""

    points: str
    #: 0 is the best; None: not ranked
    band: int | None
    title: str


def draw(shown: results.Results) -> tuple[list[Axis], list[Line]]:
    """Return axes for the parameters and the metrics, and lines, the best one last (on top)."""
    rows = [row for row in shown.rows if all(cell.is_finite for cell in row.cells)]
    rows = rows[:MAX_LINES]
    columns: list[tuple[str, list[parameters.Value]]] = [
        (each.heading, [row.parameters[each.key] for row in rows]) for each in shown.columns
    ]
    columns += [
        (choice.label, [row.cells[index].value for row in rows])
        for index, choice in enumerate(shown.choices)
    ]
    if len(columns) < 2 or not rows:
        return [], []
    gap = (WIDTH - 2 * SIDE) / (len(columns) - 1)
    axes, heights = [], []
    for index, (name, values) in enumerate(columns):
        ticks, of_rows = _scale(values)
        axes.append(Axis(x=round(SIDE + index * gap, 1), name=name, ticks=ticks))
        heights.append(of_rows)
    ranked = sum(row.rank is not None for row in rows)
    lines = []
    for number, row in enumerate(rows):
        path = " ".join(
            f"{axis.x},{height[number]}" for axis, height in zip(axes, heights, strict=True)
        )
        band = None if row.rank is None else (row.rank - 1) * BANDS // max(ranked, 1)
        title = ", ".join(f"{name}={parameters.shown(values[number])}" for name, values in columns)
        lines.append(Line(points=path, band=band, title=title))
    return axes, lines[::-1]


def _scale(values: Sequence[parameters.Value]) -> tuple[list[tuple[float, str]], list[float]]:
    """Return ticks and the height of each value: by its size, or evenly for texts."""
    numbers = [
        float(value) for value in values if isinstance(value, int | float) and value is not True
    ]
    is_numeric = len(numbers) == len(values) and all(map(math.isfinite, numbers))
    if is_numeric:
        low, high = min(numbers), max(numbers)
        is_log = low > 0 and high / low >= 50
        scaled = [math.log(number) if is_log else number for number in numbers]
        known = dict(zip(scaled, numbers, strict=True))
        ends = min(scaled), max(scaled)
        ticks = [(_height(at, *ends), f"{known[at]:.4g}") for at in dict.fromkeys(ends)]
        return ticks, [_height(at, *ends) for at in scaled]
    texts = sorted({parameters.order(value): parameters.shown(value) for value in values}.items())
    positions = {text: index for index, (_, text) in enumerate(texts)}
    ends = 0.0, float(max(len(positions) - 1, 0))
    ticks = [(_height(index, *ends), text) for text, index in positions.items()]
    return ticks, [_height(positions[parameters.shown(value)], *ends) for value in values]


def _height(at: float, low: float, high: float) -> float:
    share = 0.5 if high == low else (at - low) / (high - low)
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)
