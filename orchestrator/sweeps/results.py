"""Which point of a sweep is best: a row per point, repeats as a mean with its interval."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from orchestrator import jobs
from orchestrator.metrics import choices, summaries
from orchestrator.sweeps import parameters, records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    point: records.StoredPoint
    #: in the order of the choices; None: not reported
    measured: Sequence[choices.Measured | None]

    @property
    def state(self) -> jobs.JobState | None:
        """The state of the newest job; None: not submitted."""
        return None if self.point.job is None else self.point.job.state


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    #: mean; None: not reported
    value: float | None
    #: 95 % confidence interval of the mean; None: fewer than two runs, NaN, or preliminary
    low: float | None = None
    high: float | None = None
    #: runs in the mean
    count: int = 0
    unit: str = ""

    @property
    def is_finite(self) -> bool:
        """Whether there is a value, and no run of it is NaN."""
        return self.value is not None and math.isfinite(self.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """The runs that differ only in their repeat and their seed."""

    #: from 1; None: not ranked
    rank: int | None = None
    #: by key
    parameters: Mapping[str, parameters.Value]
    runs: Sequence[Run]
    #: in the order of the choices
    cells: Sequence[Cell]
    #: False: no run of it is jobs.JobState.COMPLETED, so the cells are preliminary
    is_final: bool

    @property
    def number(self) -> int:
        """The number of its first point."""
        return self.runs[0].point.number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """The rows of a sweep in their order."""

    #: the parameters by which rows differ
    columns: Sequence[parameters.Parameter]
    #: over whose values the rows are means
    averaged: Sequence[parameters.Parameter]
    choices: Sequence[choices.Choice]
    rows: Sequence[Row]
    #: whether unfinished runs count
    with_unfinished: bool

    @property
    def has_repeats(self) -> bool:
        """Whether a row has several runs."""
        return any(len(row.runs) > 1 for row in self.rows)


def build(
    runs: Sequence[Run],
    points: parameters.Points,
    chosen: Sequence[choices.Choice],
    *,
    averaged: Collection[str] | None = None,
    with_unfinished: bool = False,
) -> Results:
    """Return a row for each combination of values, the best by the first choice at the top.

    Only COMPLETED runs count, or all `with_unfinished`. Rows without such a run follow the others.

    Args:
        averaged: keys over whose values the rows are means; None: the repeat and seeds.
    """
    if averaged is None:
        averaged = [each.key for each in points.parameters if each.is_seed]
    columns = [each for each in points.parameters if each.key not in averaged]
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        values = (points.value(run.point, each.key) for each in columns)
        groups.setdefault(tuple(map(parameters.text, values)), []).append(run)
    rows = []
    for group in groups.values():
        counted = [run for run in group if with_unfinished or run.state is jobs.JobState.COMPLETED]
        # Without a COMPLETED run the row shows what there is so far.
        series = zip(*(run.measured for run in counted or group), strict=True)
        rows.append(
            Row(
                parameters={each.key: points.value(group[0].point, each.key) for each in columns},
                runs=group,
                cells=[_cell(measured, is_final=bool(counted)) for measured in series],
                is_final=bool(counted),
            )
        )
    return Results(
        columns=columns,
        averaged=[each for each in points.parameters if each.key in averaged],
        choices=chosen,
        rows=_ranked(rows, chosen),
        with_unfinished=with_unfinished,
    )


def _cell(measured: Iterable[choices.Measured | None], *, is_final: bool) -> Cell:
    known = [each for each in measured if each is not None]
    if not known:
        return Cell(value=None)
    summary = summaries.Summary(name="")
    for each in known:
        summary.add(each.value)
    # A mean without the runs that diverged would be better than the point is.
    is_finite = not summary.nan
    # Runs that are still going, or that failed somewhere, are not repeats of one measurement.
    low, high = (is_final and is_finite and summary.interval()) or (None, None)
    return Cell(
        value=summary.of("mean") if is_finite else math.nan,
        low=low,
        high=high,
        count=len(known),
        unit=known[0].unit,
    )


def _ranked(rows: Sequence[Row], chosen: Sequence[choices.Choice]) -> list[Row]:
    """Return the rows, the best first. If it is not known what is best, in their order."""
    direction = chosen[0].direction if chosen else 0
    if not direction:
        return list(rows)

    def key(row: Row) -> tuple[bool, bool, bool, float]:
        value, is_finite = row.cells[0].value, row.cells[0].is_finite
        order = -direction * value if value is not None and is_finite else 0.0
        return not row.is_final, value is None, not is_finite, order

    ranked: list[Row] = []
    for row in sorted(rows, key=key):
        is_ranked = row.is_final and row.cells[0].is_finite
        ranked.append(dataclasses.replace(row, rank=len(ranked) + 1 if is_ranked else None))
    return ranked


def ordered(results: Results, by: str, *, is_reversed: bool = False) -> Results:
    """Return the rows ordered by a metric (the best first), a parameter, or the point's number.

    Rows without a value stay last. ValueError if there is no such column.
    """
    key = _sort_key(results, by)
    known = [row for row in results.rows if key(row) is not None]
    rest = [row for row in results.rows if key(row) is None]
    rows = [*sorted(known, key=key, reverse=is_reversed), *rest]
    return dataclasses.replace(results, rows=rows)


def _sort_key(results: Results, by: str) -> Callable[[Row], Any]:
    """Return what rows are compared by; None for a row without a value."""
    for index, choice in enumerate(results.choices):
        if choice.label == by:
            return functools.partial(_signed, index, choice.direction)
    for parameter in results.columns:
        if by in (parameter.heading, parameter.key):
            return functools.partial(_order, parameter.key)
    if by == "point":
        return lambda row: row.number
    columns = [
        *(choice.label for choice in results.choices),
        *(parameter.heading for parameter in results.columns),
        "point",
    ]
    raise ValueError(f"there is no column {by!r}: use {', '.join(columns)}")


def _order(key: str, row: Row) -> tuple[int, float, str] | None:
    value = row.parameters[key]
    return None if value is None else parameters.order(value)


def _signed(index: int, direction: int, row: Row) -> float | None:
    value = row.cells[index].value
    if value is None or not math.isfinite(value):
        return None
    return -value if direction > 0 else value


def best(results: Results, count: int) -> Results:
    """Return only the best ranked rows."""
    rows = [row for row in results.rows if row.rank is not None and row.rank <= count]
    return dataclasses.replace(results, rows=rows)
