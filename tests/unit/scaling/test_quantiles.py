"""Quantiles, against the printed tables."""

from __future__ import annotations

import pytest

from orchestrator.scaling import quantiles


# scipy.stats.t.ppf, scipy 1.17; the first four stand in every printed table.
@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    [
        (0.975, 1, 12.706204736432095),
        (0.975, 4, 2.7764451051977987),
        (0.95, 9, 1.8331129326536335),
        (0.995, 30, 2.7499956535672250),
        (0.025, 4, -2.7764451051977987),
        (0.5, 3, 0.0),
        (0.975, 2.89047, 3.2517686359717173),
        (0.99999, 1, 31830.988607907),
    ],
)
def test_student_t(probability: float, degrees: float, value: float) -> None:
    assert quantiles.student_t(probability, degrees) == pytest.approx(value, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.9, 0)])
def test_undefined_quantiles(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        quantiles.student_t(probability, degrees)


# scipy.stats.f.sf, scipy 1.17; the first four are the 5 % and 1 % points of printed tables.
@pytest.mark.parametrize(
    ("value", "numerator", "denominator", "tail"),
    [
        (161.45, 1, 1, 0.0499996358759629),
        (4.737, 2, 7, 0.05000879894566804),
        (5.636, 5, 10, 0.010001958007050603),
        (1.910, 10, 120, 0.0500635961060136),
        (0.3, 3, 4, 0.8248943892425775),
        (1.1, 40, 900, 0.31126912175909033),
        (0.0, 1, 2, 1.0),
    ],
)
def test_tail_of_the_f_distribution(
    value: float, numerator: float, denominator: float, tail: float
) -> None:
    assert quantiles.f_tail(value, numerator, denominator) == pytest.approx(tail, rel=1e-4)


def test_undefined_tails() -> None:
    with pytest.raises(ValueError, match="no F"):
        quantiles.f_tail(1.0, 0, 3)


def test_sample_quantiles() -> None:
    assert quantiles.quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantiles.quantile([1.0, 2.0, 3.0, 4.0], 0.25) == 1.75
    with pytest.raises(ValueError, match="no values"):
        quantiles.quantile([], 0.5)


def test_interval_of_a_median() -> None:
    # Binomial with one half: 1 - 2/64 = 0.969 for six, 1 - 2 * 11/1024 = 0.979 for ten.
    assert quantiles.median_interval(range(5), 0.95) is None
    assert quantiles.median_interval(range(6), 0.95) == (0, 5)
    assert quantiles.median_interval(range(10), 0.95) == (1, 8)
