"""Quantiles of Student's t and of samples: what intervals need, without a numerical library.

The control plane has no numpy: it takes 30 MB and a fifth of a second of each start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_TINY = 1e-300
#: Continued fractions converge in far fewer steps where they are used.
_MOST_STEPS = 500


#: Of an exponent: e to this is 1e299, and 1e9 times as much is a float still.
_LARGEST_EXPONENT = 690.0


def exp(logarithm: float) -> float:
    """Return e to this power, 1e299 at most.

    The upper end of an interval on the scale of logarithms overflows where repeats differ wildly.
    """
    return math.exp(min(logarithm, _LARGEST_EXPONENT))


def student_t(probability: float, degrees: float) -> float:
    """Return the value below which Student's t with `degrees` of freedom lies so often.

    `student_t(0.975, 4)` is 2.776. ValueError outside 0 < probability < 1 or degrees <= 0.
    Accurate to 1e-8 of its size.
    """
    if not 0.0 < probability < 1.0 or degrees <= 0:
        raise ValueError(f"no quantile {probability} of t with {degrees} degrees of freedom")
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -student_t(1.0 - probability, degrees)
    high = 1.0
    while student_t_cdf(high, degrees) < probability:
        high *= 2.0
    low = high / 2.0 if high > 1.0 else 0.0
    # The distribution has no closed inverse; halving is sure, and 100 steps take a millisecond.
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if student_t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def student_t_cdf(value: float, degrees: float) -> float:
    """Return how often Student's t lies below `value`.

    By the regularised incomplete beta function (Abramowitz and Stegun 26.5.27).
    """
    tail = 0.5 * incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + value * value))
    return 1.0 - tail if value > 0 else tail


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), for 0 <= x <= 1.

    By its continued fraction (Abramowitz and Stegun 26.5.8), evaluated from the front (Lentz).
    """
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        # There the fraction converges slowly; the mirrored one does not.
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(log_front) / (a * _beta_fraction(a, b, x))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return 1 + d1/(1 + d2/(1 + ...)), the denominator of the continued fraction."""
    value, upper, lower = 1.0, 1.0, 0.0
    for step in range(1, _MOST_STEPS):
        m, odd = divmod(step, 2)
        if odd:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1.0 / _away_from_zero(1.0 + term * lower)
        upper = _away_from_zero(1.0 + term / upper)
        value *= upper * lower
        if abs(upper * lower - 1.0) < 1e-15:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def median(values: Sequence[float]) -> float:
    """Return the median; ValueError for none."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], probability: float) -> float:
    """Return the sample quantile, linear between order statistics (Hyndman and Fan's type 7)."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = probability * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def median_interval(
    values: Sequence[float], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Return the interval between two order statistics that holds the median so often at least.

    No distribution is assumed (Conover, Practical Nonparametric Statistics, 3.2). None where there
    are too few values: below six for 95 %.
    """
    ordered = sorted(values)
    count = len(ordered)
    # The number of values below the true median is binomial with one half.
    tail, rank = 0.0, 0
    for k in range(count // 2):
        tail += math.comb(count, k) / 2.0**count
        if 2.0 * tail > 1.0 - confidence:
            break
        rank = k + 1
    if rank == 0:
        return None
    return ordered[rank - 1], ordered[count - rank]
