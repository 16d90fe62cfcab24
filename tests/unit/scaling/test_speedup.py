"""Points of scaling studies, against numbers computed by hand or published."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from orchestrator import scaling


def run(size: int, throughput: float, *windows: float) -> scaling.Run:
    return scaling.Run(size=size, throughput=throughput, windows=windows)


def test_speedup_efficiency_and_serial_fraction() -> None:
    study = scaling.study([run(1, 100.0), run(2, 190.0), run(4, 320.0)])
    one, two, four = study.points
    assert (one.speedup.value, one.efficiency.value, one.serial_fraction) == (1.0, 1.0, None)
    assert two.speedup.value == pytest.approx(1.9)
    assert four.efficiency.value == pytest.approx(0.8)
    assert two.serial_fraction is not None and four.serial_fraction is not None
    # (1/1.9 - 1/2) / (1 - 1/2) and (1/3.2 - 1/4) / (1 - 1/4)
    assert two.serial_fraction.value == pytest.approx(0.0526316, abs=1e-7)
    assert four.serial_fraction.value == pytest.approx(0.0833333, abs=1e-7)
    assert study.warnings == (
        "no size was repeated: confidence intervals, if any, cover only the windows of one run",
    )
    assert study.deviation is None
    assert (two.throughput.low, two.interval_of) == (None, "none")


def test_serial_fraction_relative_to_any_smallest_size() -> None:
    # S2: 4 and 8 GPUs; as Amdahl's law through both.
    study = scaling.study([run(4, 36927.0), run(8, 62450.0)])
    share = study.points[1].serial_fraction
    assert share is not None and study.amdahl is not None
    assert share.value == pytest.approx(0.0529, abs=1e-4)
    assert share.value == pytest.approx(study.amdahl.parameters["alpha"].value, rel=1e-5)
    # With a share of 1 the throughput stays; here it falls.
    assert scaling.study([run(4, 100.0), run(8, 40.0)]).points[1].serial_fraction is None


def test_repeats_give_intervals() -> None:
    study = scaling.study(
        [run(1, 99.0), run(1, 100.0), run(1, 101.0), run(2, 189.0), run(2, 191.0), run(2, 193.0)]
    )
    one, two = study.points
    logs = [math.log(v) for v in (99, 100, 101)], [math.log(v) for v in (189, 191, 193)]
    squares = sum(sum((x - sum(group) / 3) ** 2 for x in group) for group in logs)
    deviation = math.sqrt(squares / 4)
    assert study.deviation == pytest.approx(deviation)
    # t(0.975, 4) = 2.776445
    margin = 2.776445 * deviation * math.sqrt(2 / 3)
    assert two.speedup.low is not None and two.speedup.high is not None
    assert two.speedup.low == pytest.approx(two.speedup.value * math.exp(-margin))
    assert two.efficiency.high == pytest.approx(two.speedup.value * math.exp(margin) / 2)
    assert one.throughput.value == pytest.approx((99 * 100 * 101) ** (1 / 3))
    assert (one.runs, one.interval_of, study.warnings) == (3, "repeats", ())


def test_single_run_has_the_interval_of_its_windows() -> None:
    windows = tuple(100.0 + step for step in range(10))
    point = scaling.study([run(1, 104.5, *windows)]).points[0]
    assert (point.throughput.low, point.throughput.high, point.interval_of) == (
        101.0,
        108.0,
        "windows",
    )
    assert point.windows == 10
    # A mean that two slow windows have moved.
    mean = scaling.study([run(1, 90.0, 10.0, 10.0, *windows)]).points[0].throughput
    assert mean.low is not None and mean.low <= mean.value == pytest.approx(90.0)


def test_warns_of_an_invalid_baseline() -> None:
    study = scaling.study([run(1, 2598.0), run(4, 36927.0)])
    assert study.warnings[0] == (
        "efficiency 3.55 at 4 GPUs: the runs at 1 are not a valid baseline "
        "(something else slowed them down)"
    )


@pytest.mark.parametrize("runs", [[], [run(0, 1.0)], [run(1, 0.0)], [run(1, math.nan)]])
def test_refuses_invalid_runs(runs: list[scaling.Run]) -> None:
    with pytest.raises(ValueError, match="run"):
        scaling.study(runs)


def test_leaves_outliers_out() -> None:
    clean = [
        run(gpus, speed * repeat)
        for gpus, speed in ((1, 100.0), (4, 360.0), (8, 650.0))
        for repeat in (0.99, 1.0, 1.012)
    ]
    noisy = [*clean[:-1], run(8, 450.0)]
    study = scaling.study(noisy)
    without = scaling.study(clean[:-1])
    assert study.left_out == (8,)
    assert (study.points, study.amdahl) == (without.points, without.amdahl)
    assert (study.points[-1].runs, scaling.study(clean).left_out) == (2, ())
    # With two different runs, it is unknown which is wrong. A spread in all sizes is normal.
    assert scaling.study([*clean[:-2], run(8, 450.0)]).left_out == ()
    wide = [run(g, 100.0 * g * repeat) for g in (1, 2, 4) for repeat in (0.7, 1.0, 1.4)]
    assert scaling.study(wide).left_out == ()


def coverage(trials: int, slowed: float = 1.0) -> dict[str, float]:
    """Return how often the intervals of the largest size cover the truth.

    `slowed`: factor of one of its runs, which was on a noisy node.
    """
    rng = random.Random(20261121)
    truth = {"throughput": 6400.0, "speedup": 6.4, "efficiency": 0.8}
    throughputs = {1: 1000.0, 2: 1900.0, 4: 3600.0, 8: 6400.0}
    covered = dict.fromkeys(truth, 0)
    for _ in range(trials):
        runs = [
            run(size, throughput * math.exp(rng.gauss(0.0, 0.02)))
            for size, throughput in throughputs.items()
            for _ in range(3)
        ]
        runs[-1] = dataclasses.replace(runs[-1], throughput=slowed * runs[-1].throughput)
        point = scaling.study(runs).points[-1]
        for name, value in truth.items():
            estimate = getattr(point, name)
            covered[name] += estimate.low <= value <= estimate.high
    return {name: count / trials for name, count in covered.items()}


@pytest.mark.slow
@pytest.mark.parametrize("slowed", [1.0, 0.7])
def test_coverage(slowed: float) -> None:
    shares = coverage(1000, slowed)
    assert all(0.93 <= share <= 0.97 for share in shares.values()), shares


@pytest.mark.parametrize("slowed", [1.0, 0.7])
def test_coverage_of_few_trials(slowed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # Skip the fits, which take most of the time.
    monkeypatch.setattr(scaling.fits, "usl", lambda runs: None)
    monkeypatch.setattr(scaling.fits, "amdahl", lambda runs: None)
    # Below 51 of 60 has a probability below 0.001 if the coverage is 95 %.
    shares = coverage(60, slowed)
    assert all(share >= 51 / 60 for share in shares.values()), shares
