"""The rows of a sweep's results: grouping, ranking, intervals, and what is said about them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from orchestrator import jobs
from orchestrator.metrics import choices, summaries
from orchestrator.sweeps import parameters, records, result_notes, results
from tests import builders

SHAPE = records.Shape(key="", spec="", gpu_hours=None, node_hours=None)
ACCURACY = choices.Choice(label="acc", name="acc", statistic="last", direction=1)
LOSS = choices.Choice(label="loss", name="loss", statistic="last", direction=-1)
UNKNOWN = choices.Choice(label="x", name="x", statistic="last", direction=0)
DONE, FAILED = jobs.JobState.COMPLETED, jobs.JobState.FAILED


def run(
    number: int,
    settings: dict[str, Any],
    *values: float | None,
    state: jobs.JobState | None = DONE,
    repeat: int = 1,
) -> results.Run:
    job = None if state is None else builders.make_job(row=number, state=state)
    point = records.StoredPoint(
        number=number,
        name=f"p{number}",
        identity=str(number),
        shape=SHAPE,
        repeat=repeat,
        settings=settings,
        changes=settings,
        job=job,
    )
    measured = [
        None if value is None else choices.Measured(value=value, unit="") for value in values
    ]
    return results.Run(point=point, measured=measured)


def build(
    runs: Sequence[results.Run],
    *chosen: choices.Choice,
    document: dict[str, Any] | None = None,
    **options: Any,
) -> results.Results:
    points = parameters.Points([each.point for each in runs], document or {}, ["rank", "acc"])
    return results.build(runs, points, chosen or (ACCURACY,), **options)


def numbers(shown: results.Results) -> list[tuple[int | None, int]]:
    """Rank and first point of each row."""
    return [(row.rank, row.number) for row in shown.rows]


def grid(*values: tuple[float, float, int]) -> list[results.Run]:
    """Return a run for each learning rate, accuracy and seed."""
    return [
        run(number, {"args.lr": lr, "args.seed": seed}, value)
        for number, (lr, value, seed) in enumerate(values, 1)
    ]


def test_seeds_and_repeats_are_one_row() -> None:
    shown = build(grid((0.1, 0.80, 1), (0.01, 0.5, 1), (0.1, 0.82, 2), (0.1, 0.84, 3)))
    assert [each.heading for each in shown.columns] == ["lr"]
    first, second = shown.rows
    cell = first.cells[0]
    # t(0.975, 2) = 4.302653, the standard deviation is 0.02: 4.302653 * 0.02 / sqrt(3).
    assert (cell.value, cell.count) == (pytest.approx(0.82), 3)
    assert cell.low is not None and cell.high is not None
    assert cell.high - 0.82 == pytest.approx(0.0496827, rel=1e-5)
    assert result_notes.number(cell) == "0.820 ± 0.050"
    assert (second.cells[0].low, result_notes.number(second.cells[0])) == (None, "0.5")
    repeated = [run(n, {"args.lr": 0.1}, value, repeat=n) for n, value in ((1, 0.5), (2, 0.7))]
    (row,) = build(repeated).rows
    assert (row.cells[0].value, row.cells[0].count, row.parameters) == (0.6, 2, {"args.lr": 0.1})
    each = build(repeated, averaged=[])
    assert ([column.heading for column in each.columns], len(each.rows)) == (["lr", "repeat"], 2)
    over = build(grid((0.1, 0.5, 1), (0.01, 0.7, 1)), averaged=["args.lr"])
    assert [row.cells[0].value for row in over.rows] == [0.6]


def test_only_completed_runs_count() -> None:
    runs = [
        run(1, {"args.lr": 1}, 0.9, state=FAILED),
        run(2, {"args.lr": 2}, 0.5),
        run(3, {"args.lr": 2}, 0.99, state=FAILED, repeat=2),
        run(4, {"args.lr": 3}, 0.6),
        run(5, {"args.lr": 4}, None, state=jobs.JobState.PENDING),
        run(6, {"args.lr": 5}, None, state=None),
        run(7, {"args.lr": 6}, None),
        run(8, {"args.lr": 7}, math.nan),
    ]
    shown = build(runs)
    assert numbers(shown) == [
        *((1, 4), (2, 2), (None, 8), (None, 7)),
        *((None, 1), (None, 5), (None, 6)),
    ]
    by_number = {row.number: row for row in shown.rows}
    assert [result_notes.counted(by_number[number]) for number in (2, 1, 7)] == [
        "1/2",
        "0/1",
        "0/1",
    ]
    assert result_notes.states(by_number[2].runs) == "1 COMPLETED, 1 FAILED"
    assert result_notes.states(by_number[6].runs) == "not submitted"
    assert result_notes.warnings(shown) == [
        "Not counted: 2 FAILED runs, 1 PENDING run, 1 not submitted; --unfinished counts what they "
        "reported",
        "Not counted: 1 COMPLETED run without acc",
    ]
    counting = build(runs, with_unfinished=True)
    assert numbers(counting)[:3] == [(1, 1), (2, 2), (3, 4)]
    assert result_notes.warnings(counting)[0] == (
        "Counted with what they reported: 2 FAILED runs, 1 PENDING run, 1 not submitted"
    )


def test_row_with_a_diverged_run_is_not_ranked() -> None:
    shown = build(grid((0.1, math.nan, 1), (0.1, 0.9, 2), (0.01, 0.5, 1)))
    assert numbers(shown) == [(1, 3), (None, 1)]
    assert result_notes.number(shown.rows[1].cells[0]) == "nan"


def test_direction_and_order() -> None:
    runs = [
        run(1, {"args.lr": 0.1, "args.opt": "sgd"}, 3.0, 30.0),
        run(2, {"args.lr": 0.01, "args.opt": "adam"}, 1.0, 20.0),
        run(3, {"args.lr": 1, "args.opt": None}, 2.0, None),
    ]
    shown = build(runs, LOSS, ACCURACY)
    assert numbers(shown) == [(1, 2), (2, 3), (3, 1)]
    assert numbers(results.ordered(shown, "acc")) == [(3, 1), (1, 2), (2, 3)]
    assert numbers(results.ordered(shown, "lr")) == [(1, 2), (3, 1), (2, 3)]
    assert numbers(results.ordered(shown, "args.lr", is_reversed=True)) == [(2, 3), (3, 1), (1, 2)]
    assert numbers(results.ordered(shown, "opt", is_reversed=True)) == [(3, 1), (1, 2), (2, 3)]
    assert numbers(results.ordered(shown, "point")) == [(3, 1), (1, 2), (2, 3)]
    assert numbers(results.best(shown, 2)) == [(1, 2), (2, 3)]
    with pytest.raises(ValueError, match="there is no column 'no': use loss, acc, lr, opt, point"):
        results.ordered(shown, "no")
    unranked = build(runs, UNKNOWN, ACCURACY)
    assert numbers(unranked) == [(None, 1), (None, 2), (None, 3)]
    assert result_notes.warnings(unranked)[0] == (
        "Not ranked: it is not known whether a high or a low x is better; state --direction max or "
        "min"
    )


@pytest.mark.parametrize(
    ("values", "sentences"),
    [
        (
            [(0.1, 0.80, 1), (0.1, 0.84, 2), (0.01, 0.78, 1), (0.01, 0.80, 2)],
            [
                "No clear winner: the intervals of lr=0.1 (0.82 ± 0.25) and lr=0.01 "
                "(0.79 ± 0.13) overlap"
            ],
        ),
        ([(0.1, 0.80, 1), (0.1, 0.801, 2), (0.01, 0.5, 1), (0.01, 0.501, 2)], []),
        (
            [(0.1, 0.8, 1), (0.01, 0.8, 1)],
            ["No clear winner: lr=0.1 (0.8) and lr=0.01 (0.8) are equal"],
        ),
        ([(0.1, 0.8, 1), (0.01, 0.79, 1)], []),
        ([(0.1, 0.8, 1)], []),
    ],
)
def test_winner_by_chance(values: list[tuple[float, float, int]], sentences: list[str]) -> None:
    assert result_notes.warnings(build(grid(*values))) == sentences


def test_legend() -> None:
    at = choices.Choice(
        label="loss@acc", name="loss", statistic="", direction=-1, at="acc", at_direction=1
    )
    rate = choices.Choice(label="rate", name="rate", statistic="median", direction=1)
    best = choices.Choice(label="acc:best", name="acc", statistic="max", direction=1)
    runs = [run(n, {"args.seed": n, "args.lr": 1}, 1.0 + n, 2.0, 3.0, 4.0) for n in (1, 2)]
    runs[0] = dataclasses.replace(
        runs[0],
        measured=[*runs[0].measured[:2], choices.Measured(value=3.0, unit="images/s"), None],
    )
    assert result_notes.legend(build(runs, at, best, rate, UNKNOWN)) == [
        "loss@acc: loss where acc is highest; lower is better",
        "acc:best: largest value of each run; higher is better",
        "rate: median of each run, images/s; higher is better",
        "x: last value of each run",
        "Rows are means over seed; ± is the 95 % confidence interval of the mean (Student's t)",
    ]


def test_parameters_are_those_that_vary() -> None:
    document = {
        "args": {"weight-decay": 0.5, "lr": 9},
        "resources": {"nodes": 2},
        "sweep": {"a": 1},
    }
    runs = [
        run(1, {"args.lr": 0.1, "args.fixed": 1, "args.nodes": 1, "resources.nodes": 1}, 1.0),
        run(2, {"args.weight_decay": 0.1, "args.fixed": 1.0, "args.nodes": 2}, 2.0),
        run(3, {"args.rank": (1, 2), "args.fixed": 1, "args.nodes": 2, "gpus": True}, 3.0),
    ]
    shown = build(runs, document=document)
    # A short name that two columns have is not used for either, nor is that of another column.
    assert {each.heading: each.key for each in shown.columns} == {
        "lr": "args.lr",
        "args.nodes": "args.nodes",
        "resources.nodes": "resources.nodes",
        "weight_decay": "args.weight_decay",
        "args.rank": "args.rank",
        "gpus": "gpus",
    }
    values = {row.number: row.parameters for row in shown.rows}
    assert [values[number]["args.lr"] for number in (1, 2, 3)] == [0.1, 9, 9]
    assert [values[number]["args.weight_decay"] for number in (1, 2)] == [0.5, 0.1]
    assert [values[number]["resources.nodes"] for number in (1, 2)] == [1, 2]
    assert result_notes.name(shown.rows[0], shown) == (
        "lr=9 args.nodes=2 resources.nodes=2 weight_decay=0.5 args.rank=1,2 gpus=true"
    )
    points = parameters.Points([run(1, {"args.lr": 0.1}).point], {})
    assert points.label(run(1, {"args.lr": 0.1}).point) == "lr=0.1"
    pair = [run(n, {"args.lr": 0.1}, repeat=n).point for n in (1, 2)]
    assert parameters.Points(pair, {}).label(pair[1]) == "lr=0.1 r2"


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (None, None, None, ""),
        (0.123456789, None, None, "0.123457"),
        (0.91234, 0.90784, 0.91684, "0.9123 ± 0.0045"),
        (28131.7, 26897.2, 29366.2, "28132 ± 1234"),
        (5.0, 5.0, 5.0, "5 ± 0"),
        (1e-9, 0.5e-9, 1.5e-9, "1e-09 ± 5e-10"),
        (1e-20, 0.5e-20, 1.5e-20, "1e-20 ± 5e-21"),
        (3e9, 2e9, 4e9, "3e+09 ± 1e+09"),
        (0.0, -1.7e308, 1.7e308, "0 ± 1.7e+308"),
        (math.nan, None, None, "nan"),
    ],
)
def test_significant_digits(
    value: float | None, low: float | None, high: float | None, text: str
) -> None:
    assert result_notes.number(results.Cell(value=value, low=low, high=high)) == text


finite = strategies.floats(-1e6, 1e6).map(lambda value: round(value, 6))


@hypothesis.given(strategies.lists(finite, min_size=2, max_size=12))
def test_interval_of_a_mean(values: list[float]) -> None:
    summary = summaries.Summary(name="")
    for value in values:
        summary.add(value)
    interval = summary.interval()
    assert interval is not None
    low, high = interval
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    assert low <= mean + 1e-9 and mean - 1e-9 <= high
    # A 95 % interval is wider than 1.96 standard errors, and at most 12.71.
    error = deviation / math.sqrt(len(values))
    assert 1.959 * error - 1e-6 <= (high - low) / 2 <= 12.7063 * error + 1e-6
    # It moves and grows with the values.
    moved = summaries.Summary(name="")
    for value in values:
        moved.add(3.0 * value + 7.0)
    assert moved.interval() == pytest.approx(
        (3.0 * low + 7.0, 3.0 * high + 7.0), rel=1e-6, abs=1e-5
    )


def test_interval_covers_the_true_mean_in_95_of_100_studies() -> None:
    """Of all samples of a discrete distribution close to the normal one, weighted."""
    # Binomial with n = 12, scaled; five runs, every combination of its likely values.
    weights = {k: math.comb(12, k) / 2**12 for k in range(13)}
    likely = {k: w for k, w in weights.items() if w > 0.01}
    covered = total = 0.0
    for sample in itertools.combinations_with_replacement(likely, 3):
        counts = math.factorial(3)
        for k in set(sample):
            counts //= math.factorial(sample.count(k))
        weight = counts * math.prod(likely[k] for k in sample)
        summary = summaries.Summary(name="")
        for k in sample:
            summary.add(float(k))
        interval = summary.interval()
        assert interval is not None
        total += weight
        covered += weight * (interval[0] <= 6.0 <= interval[1])
    assert covered / total == pytest.approx(0.95, abs=0.02)


states = strategies.sampled_from([DONE, DONE, DONE, FAILED, jobs.JobState.RUNNING, None])
runs_of_grids = strategies.lists(
    strategies.tuples(
        strategies.sampled_from([0.1, 0.2, 1, "a", True]),
        strategies.integers(1, 3),
        strategies.one_of(strategies.none(), finite, strategies.just(math.nan)),
        states,
    ),
    min_size=1,
    max_size=20,
)


@hypothesis.given(runs_of_grids, strategies.sampled_from([-1, 1]), strategies.booleans())
def test_every_run_is_in_one_row_and_ranks_follow_the_metric(
    table: list[tuple[Any, int, float | None, jobs.JobState | None]],
    direction: int,
    with_unfinished: bool,
) -> None:
    runs = [
        run(number, {"args.lr": lr, "args.seed": seed}, value, state=state)
        for number, (lr, seed, value, state) in enumerate(table, 1)
    ]
    choice = dataclasses.replace(UNKNOWN, direction=direction)
    shown = build(runs, choice, with_unfinished=with_unfinished)
    listed = [each.point.number for row in shown.rows for each in row.runs]
    assert sorted(listed) == [each.point.number for each in runs]
    ranked = [row for row in shown.rows if row.rank is not None]
    assert [row.rank for row in shown.rows] == [
        *range(1, len(ranked) + 1),
        *[None] * (len(shown.rows) - len(ranked)),
    ]
    values = [direction * (row.cells[0].value or 0.0) for row in ranked]
    assert values == sorted(values, reverse=True)
    for row in ranked:
        counted = [
            each.measured[0].value
            for each in row.runs
            if each.measured[0] is not None and (with_unfinished or each.state is DONE)
        ]
        assert row.cells[0].value == pytest.approx(statistics.fmean(counted), rel=1e-9, abs=1e-9)
        assert row.cells[0].count == len(counted)
    # The order in which the points are stored does not change a mean or a rank.
    backwards = build(runs[::-1], choice, with_unfinished=with_unfinished)
    means = [row.cells[0].value for row in ranked]
    again = [row.cells[0].value for row in backwards.rows if row.rank is not None]
    assert again == pytest.approx(means, rel=1e-9, abs=1e-9)
