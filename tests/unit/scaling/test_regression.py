"""Slower, faster or no evidence: against scipy's numbers, and how often it is right."""

from __future__ import annotations

import math
import random

import pytest

from orchestrator.scaling import regression
from orchestrator.scaling.regression import Verdict

BASE = [100.0, 101.0, 99.5, 100.4, 99.8]


def test_the_same_as_scipy() -> None:
    # scipy.stats.ttest_ind(log(new), log(old), equal_var=False, trim=0.2), scipy 1.17.
    found = regression.compare([95.2, 94.8, 95.5, 96.0, 70.0], BASE)
    assert found.low is not None and found.high is not None
    assert math.log(found.low) == pytest.approx(-0.061186928673797256, abs=1e-8)
    assert math.log(found.high) == pytest.approx(-0.03922972333831022, abs=1e-8)
    assert found.verdict is Verdict.SLOWER
    # Three runs: Welch's test, nothing trimmed.
    found = regression.compare([95.2, 94.8, 95.5], BASE[:3])
    assert (found.low, found.high) == pytest.approx((0.93512025, 0.96531415), abs=1e-7)


def test_what_the_words_mean() -> None:
    faster = [value * 1.1 for value in BASE]
    assert regression.compare(faster, BASE).verdict is Verdict.FASTER
    assert regression.compare(faster, BASE, higher_is_better=False).verdict is Verdict.SLOWER
    assert regression.compare(BASE, BASE).verdict is Verdict.NO_EVIDENCE
    slower = [value * 0.97 for value in BASE]
    assert regression.compare(slower, BASE).verdict is Verdict.SLOWER
    assert regression.compare(slower, BASE, threshold=0.05).verdict is Verdict.NO_EVIDENCE


def test_one_run_is_no_evidence_and_one_against_several_may_be() -> None:
    alone = regression.compare([50.0], [100.0])
    assert (alone.ratio, alone.low, alone.verdict) == (
        pytest.approx(0.5),
        None,
        Verdict.NO_EVIDENCE,
    )
    one = regression.compare([97.0], BASE[:3])
    # mean +- t(0.975, 2) s sqrt(1 + 1/3) of the logarithms, by numpy and scipy 1.17.
    assert (one.low, one.high) == pytest.approx((0.9324464053, 1.0057497960), abs=1e-7)
    assert one.verdict is Verdict.NO_EVIDENCE
    assert regression.compare([50.0], BASE).verdict is Verdict.SLOWER
    same = regression.compare([100.0, 100.0], [100.0, 100.0])
    assert (same.low, same.high, same.verdict) == (1.0, 1.0, Verdict.NO_EVIDENCE)


@pytest.mark.parametrize("runs", [[], [0.0], [math.nan], [math.inf]])
def test_what_is_no_run(runs: list[float]) -> None:
    with pytest.raises(ValueError, match="not numbers of runs"):
        regression.compare(runs, BASE)


def test_false_alarms_and_slow_downs_found() -> None:
    # Five runs a side, coefficient of variation 1 %, a slow-down of 5 %.
    rng = random.Random(20261121)

    def five(centre: float = 100.0) -> list[float]:
        return [centre * math.exp(rng.gauss(0.0, 0.01)) for _ in range(5)]

    trials = 1000
    told = [regression.compare(five(), five()).verdict for _ in range(trials)]
    assert sum(one is not Verdict.NO_EVIDENCE for one in told) <= 0.05 * trials
    told = [regression.compare(five(95.0), five()).verdict for _ in range(trials)]
    assert sum(one is Verdict.SLOWER for one in told) >= 0.95 * trials
    # One noisy node, 30 % slower, on either side.
    told = [regression.compare([*five()[:4], 70.0], five()).verdict for _ in range(trials)]
    assert sum(one is not Verdict.NO_EVIDENCE for one in told) <= 0.05 * trials
    told = [regression.compare(five(95.0), [*five()[:4], 70.0]).verdict for _ in range(trials)]
    assert sum(one is Verdict.SLOWER for one in told) >= 0.9 * trials


@pytest.mark.parametrize("others", [2, 3, 5, 10])
def test_one_run_against_several_is_as_noisy_as_they_are(others: int) -> None:
    rng = random.Random(20261121)

    def runs(count: int) -> list[float]:
        return [100.0 * math.exp(rng.gauss(0.0, 0.02)) for _ in range(count)]

    trials = 1000
    told = [regression.compare(runs(1), runs(others)) for _ in range(trials)]
    told += [regression.compare(runs(others), runs(1)) for _ in range(trials)]
    assert 0.93 <= sum(one.verdict is Verdict.NO_EVIDENCE for one in told) / len(told) <= 0.97
