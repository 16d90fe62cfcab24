"""Comparison with a baseline, per size and metric."""

from __future__ import annotations

import math
import random

import pytest

from orchestrator import reports
from orchestrator.reports import comparison


def runs(size: int, *values: float, **fields: object) -> list[reports.Measurement]:
    return [
        reports.Measurement(size=size, throughput=value, **fields)  # type: ignore[arg-type]
        for value in values
    ]


BASE = [
    *runs(1, 100.0, 101.0, 99.5, 100.4, 99.8, accuracy=0.75, attributes={"commit": "aaa"}),
    *runs(4, 380.0, 384.0, 381.0, 383.0, 379.0, accuracy=0.75, attributes={"commit": "aaa"}),
]
NOW = [
    *runs(1, 95.2, 94.8, 95.5, 95.0, 70.0, accuracy=0.75, attributes={"commit": "bbb"}),
    *runs(4, 381.0, 383.0, 380.0, 382.0, 384.0, accuracy=0.75, attributes={"commit": "bbb"}),
]


def test_rows_and_notes() -> None:
    result = comparison.compare(NOW, BASE)
    assert [(line.size, line.metric, line.verdict) for line in result.lines] == [
        (1, "throughput", "slower"),
        (1, "accuracy", "no evidence"),
        (4, "throughput", "no evidence"),
        (4, "accuracy", "no evidence"),
    ]
    assert comparison.rows(result)[0] == {
        "curve": "",
        "size": 1,
        "metric": "throughput",
        "change": "-5.1 %",
        "interval": "-6.4 to -3.7 %",
        "verdict": "slower",
        "runs": 5,
        "baseline_runs": 5,
        "ratio": pytest.approx(0.9494, abs=1e-4),
        "ratio_low": pytest.approx(0.9361, abs=1e-4),
        "ratio_high": pytest.approx(0.9628, abs=1e-4),
        "threshold": 0.02,
        "is_worse": True,
    }
    assert result.notes == (
        "commit was aaa and is bbb",
        " is 26.3 % slower than the median of 1 GPU: check its node",
        "95 % confidence intervals, joint for all 4 comparisons",
    )
    assert comparison.worse(result, "gpus") == ["throughput of 1 GPU is -5.1 % (-6.4 to -3.7 %)"]


def test_names_a_noisy_node_of_a_single_size() -> None:
    noisy = runs(2, 100.0, 100.2, 80.0, node_list="n3")
    steady = runs(2, 100.0, 100.2, 99.9)
    sentence = " on n3 is 20.0 % slower than the median of 2 GPUs: check its node"
    assert sentence in comparison.compare(noisy, steady).notes
    assert f"baseline: {sentence}" in comparison.compare(steady, noisy).notes


def test_a_threshold_of_each_metric() -> None:
    result = comparison.compare(NOW, BASE, {"throughput": 0.06}, ["throughput"])
    assert comparison.worse(result, "gpus") == []
    slow = runs(1, 9.0, 9.1, 9.2, epoch_seconds=11.0)
    before = runs(1, 10.0, 10.1, 10.2, epoch_seconds=10.0)
    (line,) = comparison.compare(slow, before, metrics=["epoch_time"]).lines
    assert (line.metric, line.verdict, line.threshold) == ("epoch_time", "slower", 0.02)
    assert line.ratio == pytest.approx(1.1)


def test_results_of_accuracy() -> None:
    lower = [run for value in (0.70, 0.705, 0.71) for run in runs(1, 10.0, accuracy=value)]
    before = [run for value in (0.80, 0.801, 0.802) for run in runs(1, 10.0, accuracy=value)]
    verdicts = {line.metric: line.verdict for line in comparison.compare(lower, before).lines}
    assert verdicts == {"throughput": "no evidence", "accuracy": "worse"}
    verdicts = {line.metric: line.verdict for line in comparison.compare(before, lower).lines}
    assert verdicts == {"throughput": "no evidence", "accuracy": "better"}


def test_compares_runs_with_equal_attributes() -> None:
    before = [
        *runs(2, 190.0, attributes={"mode": "ddp"}),
        *runs(2, 150.0, attributes={"mode": "dp"}),
    ]
    now = [*runs(2, 189.0, attributes={"mode": "ddp"}), *runs(8, 600.0, attributes={"mode": "ddp"})]
    result = comparison.compare(now, before)
    assert [(line.curve, line.size) for line in result.lines] == [("mode=ddp", 2)]
    assert result.notes == (
        "not compared, because the baseline has no such runs: 8 GPUs, mode=ddp",
        "not compared, because there are no such runs now: 2 GPUs, mode=dp",
        "too few runs for a confidence interval: 2 GPUs",
    )


def false_positive_rate(trials: int) -> float:
    """Return how often any of eight comparisons of equal runs reports a change."""
    rng = random.Random(20261121)

    def side() -> list[reports.Measurement]:
        return [
            run
            for size in range(1, 9)
            for run in runs(size, *(100.0 * math.exp(rng.gauss(0.0, 0.03)) for _ in range(5)))
        ]

    alarms = 0
    for _ in range(trials):
        result = comparison.compare(side(), side(), {"throughput": 0.0})
        alarms += any(line.verdict != "no evidence" for line in result.lines)
    return alarms / trials


def test_joint_false_positive_rate_of_few_trials() -> None:
    # More than 7 of 40 has a probability below 0.001 if the rate is 5 %.
    assert false_positive_rate(40) <= 7 / 40


@pytest.mark.slow
def test_joint_false_positive_rate() -> None:
    assert false_positive_rate(1000) <= 0.05
