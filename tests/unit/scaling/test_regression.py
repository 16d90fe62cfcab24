"""Regression checks: against scipy, and their false positive rate and power."""

from __future__ import annotations

import math
import random

import pytest

from orchestrator.scaling import regression

SLOW = pytest.mark.slow
BASE = [100.0, 101.0, 99.5, 100.4, 99.8]


def test_same_interval_as_scipy() -> None:
    # scipy.stats.ttest_ind(log(new), log(old), equal_var=False, trim=0.2), scipy 1.17.
    result = regression.compare([95.2, 94.8, 95.5, 96.0, 70.0], BASE)
    assert result.low is not None and result.high is not None
    assert math.log(result.low) == pytest.approx(-0.061186928673797256, abs=1e-8)
    assert math.log(result.high) == pytest.approx(-0.03922972333831022, abs=1e-8)
    assert result.result == "slower"
    # Three runs: Welch's test, nothing trimmed.
    result = regression.compare([95.2, 94.8, 95.5], BASE[:3])
    assert (result.low, result.high) == pytest.approx((0.93512025, 0.96531415), abs=1e-7)


def test_direction_and_threshold() -> None:
    faster = [value * 1.1 for value in BASE]
    assert regression.compare(faster, BASE).result == "faster"
    assert regression.compare(faster, BASE, higher_is_better=False).result == "slower"
    assert regression.compare(BASE, BASE).result == "no evidence"
    slower = [value * 0.97 for value in BASE]
    assert regression.compare(slower, BASE).result == "slower"
    assert regression.compare(slower, BASE, threshold=0.05).result == "no evidence"


def test_single_runs() -> None:
    alone = regression.compare([50.0], [100.0])
    assert (alone.ratio, alone.low, alone.result) == (
        pytest.approx(0.5),
        None,
        "no evidence",
    )
    one = regression.compare([97.0], BASE[:3])
    # mean +- t(0.975, 2) s sqrt(1 + 1/3) of the logarithms, by numpy and scipy 1.17.
    assert (one.low, one.high) == pytest.approx((0.9324464053, 1.0057497960), abs=1e-7)
    assert one.result == "no evidence"
    assert regression.compare([50.0], BASE).result == "slower"
    same = regression.compare([100.0, 100.0], [100.0, 100.0])
    assert (same.low, same.high, same.result) == (1.0, 1.0, "no evidence")


@pytest.mark.parametrize("runs", [[], [0.0], [math.nan], [math.inf]])
def test_refuses_invalid_runs(runs: list[float]) -> None:
    with pytest.raises(ValueError, match="not numbers of runs"):
        regression.compare(runs, BASE)


def rates(trials: int) -> dict[str, float]:
    """Return rates with five runs a side and 1 % noise; "noisy": one run is 30 % slower."""
    rng = random.Random(20261121)

    def five(center: float = 100.0) -> list[float]:
        return [center * math.exp(rng.gauss(0.0, 0.01)) for _ in range(5)]

    def noisy() -> list[float]:
        return [*five()[:4], 70.0]

    counts = dict.fromkeys(("false", "found", "false, noisy", "found, noisy"), 0)
    for _ in range(trials):
        counts["false"] += regression.compare(five(), five()).result != "no evidence"
        counts["found"] += regression.compare(five(95.0), five()).result == "slower"
        result = regression.compare(noisy(), five()).result
        counts["false, noisy"] += result != "no evidence"
        counts["found, noisy"] += regression.compare(five(95.0), noisy()).result == "slower"
    return {name: count / trials for name, count in counts.items()}


@pytest.mark.parametrize(("trials", "slack"), [(40, 0.1), pytest.param(1000, 0, marks=SLOW)])
def test_false_positive_rate_and_power(trials: int, slack: float) -> None:
    rate = rates(trials)
    assert rate["false"] <= 0.05 + slack and rate["false, noisy"] <= 0.05 + slack, rate
    assert rate["found"] >= 0.95 - slack and rate["found, noisy"] >= 0.9 - slack, rate


@pytest.mark.parametrize(("trials", "slack"), [(40, 0.1), pytest.param(1000, 0.0, marks=SLOW)])
@pytest.mark.parametrize("others", [2, 3, 5, 10])
def test_coverage_of_one_run_against_several(others: int, trials: int, slack: float) -> None:
    rng = random.Random(20261121)

    def runs(count: int) -> list[float]:
        return [100.0 * math.exp(rng.gauss(0.0, 0.02)) for _ in range(count)]

    results = [regression.compare(runs(1), runs(others)).result for _ in range(trials)]
    results += [regression.compare(runs(others), runs(1)).result for _ in range(trials)]
    share = results.count("no evidence") / len(results)
    assert 0.93 - slack <= share <= 0.97 + slack
