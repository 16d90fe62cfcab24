"""Tables of scaling studies, against figures that were worked out by hand or are published."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from orchestrator import scaling


def run(gpus: int, throughput: float, *windows: float, **attributes: str) -> scaling.Run:
    return scaling.Run(gpus=gpus, throughput=throughput, windows=windows, attributes=attributes)


def test_speedup_efficiency_and_serial_share() -> None:
    study = scaling.study([run(1, 100.0), run(2, 190.0), run(4, 320.0)])
    one, two, four = study.points
    assert (one.speedup.value, one.efficiency.value, one.serial_share) == (1.0, 1.0, None)
    assert two.speedup.value == pytest.approx(1.9)
    assert four.efficiency.value == pytest.approx(0.8)
    assert two.serial_share is not None and four.serial_share is not None
    # (1/1.9 - 1/2) / (1 - 1/2) and (1/3.2 - 1/4) / (1 - 1/4)
    assert two.serial_share.value == pytest.approx(0.0526316, abs=1e-7)
    assert four.serial_share.value == pytest.approx(0.0833333, abs=1e-7)
    assert study.warnings == (
        "no size was repeated: intervals, where there are any, are of one run's windows",
    )
    assert study.deviation is None
    assert (two.throughput.low, two.interval_of) == (None, "none")


def test_the_serial_share_is_amdahls_from_whatever_size_on() -> None:
    # S2: 4 and 8 GPUs; as Amdahl's law through both.
    study = scaling.study([run(4, 36927.0), run(8, 62450.0)])
    share = study.points[1].serial_share
    assert share is not None and study.amdahl is not None
    assert share.value == pytest.approx(0.0529, abs=1e-4)
    assert share.value == pytest.approx(study.amdahl.parameters["alpha"].value, rel=1e-5)
    # With a share of 1 the throughput stays; here it falls.
    assert scaling.study([run(4, 100.0), run(8, 40.0)]).points[1].serial_share is None


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


def test_one_run_has_the_interval_of_its_windows() -> None:
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


def test_a_baseline_that_does_not_compare_is_said() -> None:
    study = scaling.study([run(1, 2598.0), run(4, 36927.0)])
    assert study.points[1].too_efficient
    assert study.warnings[0] == (
        "efficiency 3.55 at 4 GPUs: the baseline of 1 does not compare"
        " (something else slowed it down)"
    )


def test_what_differs_is_named() -> None:
    runs = [
        run(1, 100.0, precision="fp32", batch="32"),
        run(4, 300.0, precision="bf16", batch="128"),
        run(8, 500.0, precision="bf16", batch="256"),
    ]
    assert scaling.differences(runs, frozenset({"batch"})) == {
        "precision": {"fp32": [1], "bf16": [4, 8]}
    }
    lacking = [run(1, 1.0, model="a"), run(2, 2.0)]
    assert scaling.differences(lacking) == {"model": {"a": [1], "unknown": [2]}}


@pytest.mark.parametrize("runs", [[], [run(0, 1.0)], [run(1, 0.0)], [run(1, math.nan)]])
def test_what_is_no_run(runs: list[scaling.Run]) -> None:
    with pytest.raises(ValueError, match="run"):
        scaling.study(runs)


def test_one_noisy_node_moves_nothing() -> None:
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
    # Two that differ: nobody knows which one is wrong. A spread that all sizes have is usual.
    assert scaling.study([*clean[:-2], run(8, 450.0)]).left_out == ()
    wide = [run(g, 100.0 * g * repeat) for g in (1, 2, 4) for repeat in (0.7, 1.0, 1.4)]
    assert scaling.study(wide).left_out == ()


def held(trials: int, slowed: float = 1.0) -> dict[str, float]:
    """Return how often the intervals of the largest size hold the truth; `slowed`: one run of it
    was on a noisy node.
    """
    rng = random.Random(20261121)
    sizes, truth = (1, 2, 4, 8), {"throughput": 6400.0, "speedup": 6.4, "efficiency": 0.8}
    speeds = {1: 1000.0, 2: 1900.0, 4: 3600.0, 8: 6400.0}
    found = dict.fromkeys(truth, 0)
    for _ in range(trials):
        drawn = [
            run(gpus, speeds[gpus] * math.exp(rng.gauss(0.0, 0.02)))
            for gpus in sizes
            for _ in range(3)
        ]
        drawn[-1] = dataclasses.replace(drawn[-1], throughput=slowed * drawn[-1].throughput)
        point = scaling.study(drawn).points[-1]
        for name, value in truth.items():
            estimate = getattr(point, name)
            found[name] += estimate.low <= value <= estimate.high
    return {name: count / trials for name, count in found.items()}


@pytest.mark.slow
def test_the_table_holds_the_truth() -> None:
    shares = held(1000)
    assert all(0.93 <= share <= 0.97 for share in shares.values()), shares
    shares = held(1000, slowed=0.7)
    assert all(0.93 <= share <= 0.97 for share in shares.values()), shares


def test_the_table_holds_the_truth_in_short() -> None:
    # Of 60, fewer than 51 would be less than one in a thousand if it were 95 of 100.
    shares = held(60)
    assert all(share >= 51 / 60 for share in shares.values()), shares
    shares = held(60, slowed=0.7)
    assert all(share >= 51 / 60 for share in shares.values()), shares
