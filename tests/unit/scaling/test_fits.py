"""Fits of scaling laws: against scipy, at their bounds, and the coverage of their intervals."""

from __future__ import annotations

import math
import random

import pytest

from orchestrator.scaling import fits

RUNS = {
    1: [1000.0, 1012.0, 991.0],
    2: [1941.0, 1962.0, 1923.0],
    4: [3660.0, 3618.0, 3701.0],
    8: [6490.0, 6555.0, 6411.0],
    16: [10030.0, 10110.0, 9921.0],
}


def law(gpus: int, gamma: float, alpha: float, beta: float = 0.0) -> float:
    return gamma * gpus / (1.0 + alpha * (gpus - 1) + beta * gpus * (gpus - 1))


def values(fit: fits.Fit | None) -> dict[str, float]:
    assert fit is not None
    return {name: parameter.value for name, parameter in fit.parameters.items()}


def test_same_fit_as_scipy() -> None:
    # scipy.optimize.curve_fit of the logarithms, scipy 1.17.
    amdahl, usl = fits.amdahl(RUNS), fits.usl(RUNS)
    assert values(amdahl) == pytest.approx({"gamma": 1013.51144, "alpha": 0.0396271}, rel=1e-6)
    assert values(usl) == pytest.approx(
        {"gamma": 999.804186, "alpha": 0.0273608985, "beta": 7.73612909e-4}, rel=1e-6
    )
    assert amdahl is not None and usl is not None
    assert amdahl.deviation == pytest.approx(0.01746998, rel=1e-6)
    assert usl.deviation == pytest.approx(0.009674951, rel=1e-6)
    # Its intervals are by the curvature; where the law is nearly linear the profile's are the same.
    beta = usl.parameters["beta"]
    assert beta.low is not None and beta.high is not None
    # t(0.975, 12) = 2.178813
    assert (beta.high - beta.low) / 2 == pytest.approx(2.178813 * 0.00013814, rel=0.03)


def test_recovers_exact_laws() -> None:
    runs = {gpus: [law(gpus, 500.0, 0.05, 0.002)] for gpus in (1, 2, 4, 8, 16)}
    assert values(fits.usl(runs)) == pytest.approx(
        {"gamma": 500.0, "alpha": 0.05, "beta": 0.002}, rel=1e-5
    )
    runs = {gpus: [law(gpus, 500.0, 0.05)] for gpus in (2, 4, 8)}
    assert values(fits.amdahl(runs)) == pytest.approx({"gamma": 500.0, "alpha": 0.05}, rel=1e-6)


@pytest.mark.parametrize(
    "runs",
    [
        {1: [100.0], 2: [100.0], 4: [100.0]},
        {2: [100.0, 100.0], 4: [100.0]},
        {2: [500.0, 500.0], 4: [250.0], 8: [125.0], 16: [62.5]},
        {1: [100.0], 2: [200.0], 4: [400.0], 8: [800.0]},
    ],
)
def test_runs_without_noise(runs: dict[int, list[float]]) -> None:
    for fit in (fits.amdahl(runs), fits.usl(runs)):
        for parameter in fit.parameters.values() if fit else ():
            assert parameter.low is not None and parameter.high is not None
            assert (
                parameter.low <= parameter.value <= parameter.high
                or parameter.high == pytest.approx(parameter.value)
            )


@pytest.mark.parametrize(
    ("runs", "alpha"),
    [
        ({1: [100.0], 2: [100.0], 4: [100.0]}, 1.0),
        ({2: [100.0, 100.0], 4: [100.0]}, 1.0),
        ({1: [100.0], 2: [200.0], 4: [400.0]}, 0.0),
        ({1: [100.0], 3: [100.0 * 3 / 1.1] * 3, 16: [1600 / 1.75], 64: [6400 / 4.15]}, 0.05),
    ],
)
def test_exact_runs_have_intervals_of_width_zero(
    runs: dict[int, list[float]], alpha: float
) -> None:
    fit = fits.amdahl(runs)
    assert fit is not None
    result = fit.parameters["alpha"]
    assert (result.low, result.high) == (result.value, result.value)
    assert result.value == pytest.approx(alpha, abs=1e-9)


def test_one_sided_interval_at_a_bound() -> None:
    fit = fits.amdahl({1: [100.0, 101.0], 2: [202.0, 203.0], 4: [408.0, 405.0]})
    assert fit is not None
    alpha = fit.parameters["alpha"]
    assert (alpha.value, alpha.low, alpha.at_bound) == (0.0, 0.0, True)
    assert alpha.high is not None and 0.0 < alpha.high < 0.02


def test_too_few_sizes() -> None:
    assert fits.amdahl({4: [1.0, 2.0]}) is None
    assert fits.usl({1: [1.0], 2: [2.0], 4: [3.0]}) is None
    two = fits.amdahl({1: [100.0], 2: [190.0]})
    assert two is not None
    # Two runs, two parameters: the fit is exact, and its error cannot be estimated.
    assert (two.degrees, two.parameters["alpha"].low, two.parameters["alpha"].high) == (
        0,
        None,
        None,
    )
    assert math.isnan(two.deviation)
    with pytest.raises(ValueError, match="throughputs of 2 GPUs must be positive"):
        fits.amdahl({1: [100.0], 2: [0.0]})


def test_values_of_a_fit() -> None:
    fit = fits.usl({gpus: [law(gpus, 500.0, 0.05, 0.002)] for gpus in (1, 2, 4, 8, 16)})
    assert fit is not None
    assert fit.throughput(8) == pytest.approx(law(8, 500.0, 0.05, 0.002))
    # 1 / (1 + 0.05 (p - 1) + 0.002 p (p - 1)) is 0.723 at 7 GPUs and 0.684 at 8.
    assert fit.most_gpus(0.72) == (7, False)
    assert fit.most_gpus(0.01) == (32, True)
    assert fit.largest == 32
    assert fit.peak() == pytest.approx(math.sqrt(0.95 / 0.002), rel=1e-4)
    amdahl = fits.amdahl({1: [100.0], 2: [190.0]})
    assert amdahl is not None and amdahl.peak() is None


TRUTHS = [
    ("amdahl", 0.02, 0.0, (1, 2, 4, 8, 16), 3, 0.01),
    ("amdahl", 0.1, 0.0, (1, 2, 4, 8), 1, 0.03),
    ("usl", 0.03, 0.001, (1, 2, 4, 8, 16), 3, 0.01),
    ("usl", 0.02, 0.0005, (1, 2, 4, 8, 16, 32), 3, 0.02),
]


def coverage(
    trials: int, name: str, alpha: float, beta: float, sizes: tuple[int, ...], runs: int, cv: float
) -> dict[str, float]:
    """Return how often each interval covers the truth, of the fits that are not at a bound."""
    rng = random.Random(20261121)
    truth = {"gamma": 1000.0, "alpha": alpha, "beta": beta}
    held = dict.fromkeys(("gamma", "alpha", *(("beta",) if name == "usl" else ())), 0)
    counted = dict.fromkeys(held, 0)
    for _ in range(trials):
        drawn = {
            gpus: [
                law(gpus, 1000.0, alpha, beta) * math.exp(rng.gauss(0.0, cv)) for _ in range(runs)
            ]
            for gpus in sizes
        }
        fit = fits.amdahl(drawn) if name == "amdahl" else fits.usl(drawn)
        assert fit is not None
        for parameter, item in fit.parameters.items():
            assert item.low is not None and item.high is not None
            if not item.at_bound:
                counted[parameter] += 1
                held[parameter] += item.low <= truth[parameter] <= item.high
    return {parameter: held[parameter] / counted[parameter] for parameter in held}


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.001), (0.02, 0.0)])
def test_coverage_at_a_bound(alpha: float, beta: float) -> None:
    rng = random.Random(20261121)
    bound = "alpha" if alpha == 0.0 else "beta"
    at_bound, missed = 0, 0
    for _ in range(300):
        drawn = {
            gpus: [law(gpus, 1000.0, alpha, beta) * math.exp(rng.gauss(0.0, 0.01)) for _ in "12"]
            for gpus in (1, 2, 4, 8, 16)
        }
        fit = fits.usl(drawn)
        assert fit is not None
        one = fit.parameters[bound]
        at_bound += one.at_bound
        missed += one.low is None or one.low > 0.0
    # The truth is the bound itself: about half of the estimates end there.
    assert 0.35 <= at_bound / 300 <= 0.65
    assert missed / 300 <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("name", "alpha", "beta", "sizes", "runs", "cv"), TRUTHS)
def test_coverage(
    name: str, alpha: float, beta: float, sizes: tuple[int, ...], runs: int, cv: float
) -> None:
    rate = coverage(1000, name, alpha, beta, sizes, runs, cv)
    assert all(0.93 <= share <= 0.97 for share in rate.values()), rate


def test_coverage_of_few_trials() -> None:
    # Below 15 of 20 has a probability below 0.001 if the coverage is 95 %.
    rate = coverage(20, *TRUTHS[0])
    assert all(share >= 15 / 20 for share in rate.values()), rate


def p_value(rng: random.Random, sizes: tuple[int, ...], *, power: float = 1.0) -> float:
    """Return the p-value of the F test for lack of fit of a study that follows Amdahl's law."""
    drawn = {
        size: [
            law(size, 1000.0, 0.05, 0.0) ** power * math.exp(rng.gauss(0.0, 0.02)) for _ in "123"
        ]
        for size in sizes
    }
    fit = fits.amdahl(drawn)
    assert fit is not None and fit.lack_of_fit is not None
    return fit.lack_of_fit


def test_lack_of_fit_is_rarely_found_in_runs_that_follow_the_law() -> None:
    rng = random.Random(20261122)
    values = [p_value(rng, (1, 2, 4, 8, 16)) for _ in range(200)]
    # p-values are uniform: of 200, 10 are expected below 0.05, and more than 20 once in 500 times.
    assert sum(value < 0.05 for value in values) <= 20
    assert 80 <= sum(value < 0.5 for value in values) <= 120
    # Throughput that grows with a power of the size does not follow it.
    assert all(p_value(rng, (1, 2, 4, 8, 16), power=0.8) < 0.05 for _ in range(20))


def test_no_test_for_lack_of_fit_without_repeats_or_spare_sizes() -> None:
    for runs in ({1: [100.0], 2: [190.0], 4: [300.0]}, {1: [100.0, 101.0], 2: [190.0, 191.0]}):
        fit = fits.amdahl(runs)
        assert fit is not None and fit.lack_of_fit is None and fit.rejected == ""
    # Repeats without any noise.
    exact = fits.amdahl({size: [law(size, 100.0, 0.05, 0.0)] * 2 for size in (1, 2, 4)})
    assert exact is not None and exact.lack_of_fit == 1.0
    wrong = fits.amdahl({size: [100.0 * size**0.5] * 2 for size in (1, 2, 4, 8, 16)})
    assert wrong is not None and wrong.lack_of_fit == 0.0
