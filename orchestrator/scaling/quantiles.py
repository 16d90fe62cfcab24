"""Quantiles of Student's t distribution and of samples, and the tail of the F distribution.

scipy has them too, but it and numpy take 100 MB and a fifth of a second of each start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

#: exp(690) is 1e299: even 1e9 times as much is still a float.
_MAX_EXPONENT = 690.0
_SIMPSON_INTERVALS = 256


def exp(logarithm: float) -> float:
    """Return e to this power, at most 1e299: ends of wide intervals would overflow."""
    return math.exp(min(logarithm, _MAX_EXPONENT))


def student_t(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t distribution, with a relative error below 1e-8.

    `student_t(0.975, 4)` is 2.776. ValueError unless 0 < probability < 1 and degrees > 0.
    """
    if not 0.0 < probability < 1.0 or degrees <= 0:
        raise ValueError(f"no quantile {probability} of t with {degrees} degrees of freedom")
    if probability < 0.5:
        return -student_t(1.0 - probability, degrees)

    # t = sqrt(degrees) sinh(u) has a density proportional to cosh(u)^-degrees.
    def density(u: float) -> float:
        return math.pow(math.cosh(u), -degrees)

    log_gammas = math.lgamma(degrees / 2.0) - math.lgamma((degrees + 1.0) / 2.0)
    half_area = 0.5 * math.sqrt(math.pi) * math.exp(log_gammas)
    u, area_left = 0.0, (2.0 * probability - 1.0) * half_area
    # Newton's method never overshoots, because the density falls.
    while (step := area_left / density(u)) > 1e-14 * max(u, 1e-9):
        area_left -= _integral(density, u, u + step)
        u += step
    return math.sqrt(degrees) * math.sinh(u)


def f_tail(value: float, numerator: float, denominator: float) -> float:
    """Return the probability that F with these degrees of freedom exceeds `value` (p-value).

    `f_tail(4.74, 2, 7)` is 0.050. ValueError for degrees of freedom below one or a negative value.
    """
    if numerator < 1 or denominator < 1 or value < 0.0:
        raise ValueError(f"no F({numerator}, {denominator}) at {value}")
    # The regularised incomplete beta function, with the sine of u as the root of its variable.
    log_beta = (
        math.lgamma(numerator / 2.0)
        + math.lgamma(denominator / 2.0)
        - math.lgamma((numerator + denominator) / 2.0)
    )
    scale = 2.0 * math.exp(-log_beta)

    def density(u: float) -> float:
        sine, cosine = math.sin(u), max(0.0, math.cos(u))
        return scale * math.pow(sine, denominator - 1.0) * math.pow(cosine, numerator - 1.0)

    end = math.asin(math.sqrt(denominator / (denominator + numerator * value)))
    return min(1.0, _integral(density, 0.0, end))


def _integral(function: Callable[[float], float], low: float, high: float) -> float:
    """Integrate by Simpson's rule."""
    width = (high - low) / _SIMPSON_INTERVALS
    inner = math.fsum(
        (4.0 if index % 2 else 2.0) * function(low + index * width)
        for index in range(1, _SIMPSON_INTERVALS)
    )
    return (function(low) + inner + function(high)) * width / 3.0


def quantile(values: Sequence[float], probability: float) -> float:
    """Return the sample quantile, linear between order statistics (Hyndman and Fan's type 7).

    ValueError if there are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    position = probability * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Return a confidence interval of the median between two order statistics.

    No distribution is assumed (Conover, Practical Nonparametric Statistics, 3.2). None if there
    are too few values: below six for 95 %.
    """
    ordered = sorted(values)
    count = len(ordered)
    # The number of values below the true median is binomial with p = 1/2.
    tail, rank = 0.0, 0
    for k in range(count // 2):
        tail += math.comb(count, k) / 2.0**count
        if 2.0 * tail > 1.0 - confidence:
            break
        rank = k + 1
    return (ordered[rank - 1], ordered[count - rank]) if rank else None
