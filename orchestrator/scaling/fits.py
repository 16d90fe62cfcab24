"""Amdahl's law and the Universal Scalability Law (USL), fitted to throughputs.

X(p) = gamma p / (1 + alpha (p - 1) + beta p (p - 1)): gamma is the throughput of one GPU, alpha
the contention, beta the coherency (Gunther, Guerrilla Capacity Planning, 2007). Amdahl's law has
beta = 0, and its alpha is the serial fraction.

The noise of a throughput grows with it, so logarithms are fitted, by least squares. Confidence
intervals are profile likelihood intervals: all values whose best fit is not worse than F(1, n - k)
allows (Bates and Watts, Nonlinear Regression Analysis, 1988, 6.1). The interval of an estimate at
its bound is one-sided.

A law that does not describe the runs is rejected, and nothing is concluded from it: if the RMS
deviation is more than MAX_DEVIATION, or if the F test for lack of fit, which compares the deviation
with that of repeats (Draper and Smith, Applied Regression Analysis, 1998, 2.1), is significant and
the deviation is more than LACK_OF_FIT_DEVIATION: with precise repeats any law is significantly
wrong.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from orchestrator.scaling import quantiles

#: The USL has three parameters.
USL_SIZES = 4
#: A fit is not extrapolated beyond this many times the largest size.
REACH = 2.0

#: Sites ask for an efficiency of 70 to 80 %. A law that deviates by more cannot tell these apart.
MAX_DEVIATION = 0.1
#: Smaller differences do not matter in practice, as for outliers and baselines.
LACK_OF_FIT_DEVIATION = 0.05
SIGNIFICANCE = 0.05

#: alpha and beta where the search starts: no loss, little, much.
_STARTS = ((0.0, 0.0), (0.02, 1e-4), (0.2, 1e-2))
_BOUNDS = {"log_gamma": (-math.inf, math.inf), "alpha": (0.0, 1.0), "beta": (0.0, 1.0)}
_MAX_STEPS = 200
#: Residuals below this share of the throughput are rounding errors.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its 95 % confidence interval."""

    value: float
    #: None: too few runs
    low: float | None = None
    high: float | None = None
    #: at the end of what is possible; the interval is one-sided
    at_bound: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    #: amdahl or usl
    law: str
    #: gamma, alpha and, for usl, beta
    parameters: Mapping[str, Estimate]
    #: RMS deviation of the runs from the law, as a share of the throughput
    deviation: float
    #: degrees of freedom: runs less parameters
    degrees: int
    #: p-value of the F test for lack of fit; None without repeats or spare sizes
    lack_of_fit: float | None
    #: the fitted sizes, ascending
    sizes: tuple[int, ...]

    @property
    def rejected(self) -> str:
        """Why the law does not describe the runs, in a phrase; "": it does, or nothing shows it."""
        if self.degrees < 1:
            return ""
        deviates = f"RMS deviation {100.0 * self.deviation:.1f} %"
        is_significant = self.lack_of_fit is not None and self.lack_of_fit < SIGNIFICANCE
        if is_significant and self.deviation > LACK_OF_FIT_DEVIATION:
            return f"{deviates}; F test for lack of fit: p = {self.lack_of_fit:.2g}"
        if self.deviation > MAX_DEVIATION:
            return f"{deviates}, more than {100.0 * MAX_DEVIATION:.0f} %"
        return ""

    @property
    def largest(self) -> float:
        """The largest size to which the law is extrapolated."""
        return REACH * self.sizes[-1]

    def throughput(self, size: float) -> float:
        """Return the throughput by the law, in the unit of the measured ones."""
        alpha = self.parameters["alpha"].value
        beta = self.parameters["beta"].value if "beta" in self.parameters else 0.0
        return self.parameters["gamma"].value * size / _slowdown(size, alpha, beta)

    def efficiency(self, size: float) -> float:
        """Return the throughput per GPU relative to that of the smallest fitted size."""
        base = self.sizes[0]
        return (self.throughput(size) / size) / (self.throughput(base) / base)

    def most_gpus(self, efficiency: float) -> tuple[int, bool]:
        """Return the largest size with this efficiency, and whether `largest` ended the search."""
        sizes = range(self.sizes[0], int(self.largest) + 1)
        kept = bisect.bisect(sizes, False, key=lambda size: self.efficiency(size) < efficiency)
        return sizes[max(kept, 1) - 1], kept == len(sizes)

    def peak(self) -> float | None:
        """Return the size with the largest throughput; None if throughput always grows."""
        beta = self.parameters.get("beta")
        if beta is None or beta.value <= 0.0:
            return None
        return math.sqrt(max(0.0, 1.0 - self.parameters["alpha"].value) / beta.value)


def amdahl(runs: Mapping[int, Sequence[float]]) -> Fit | None:
    """Fit Amdahl's law to throughputs by size; None for fewer than two sizes.

    ValueError for a throughput that is not positive.
    """
    return _fit(runs, "amdahl", ("log_gamma", "alpha")) if len(runs) >= 2 else None


def usl(runs: Mapping[int, Sequence[float]]) -> Fit | None:
    """Fit the USL, as amdahl() does; None for fewer than USL_SIZES sizes."""
    return _fit(runs, "usl", tuple(_BOUNDS)) if len(runs) >= USL_SIZES else None


def _fit(runs: Mapping[int, Sequence[float]], law: str, names: tuple[str, ...]) -> Fit:
    for size, throughputs in runs.items():
        if size < 1 or not throughputs or not all(0.0 < x < math.inf for x in throughputs):
            raise ValueError(f"throughputs of {size} GPUs must be positive numbers: {throughputs}")
    sizes = sorted(runs)
    data = [(size, math.log(throughput)) for size in sizes for throughput in runs[size]]
    degrees = len(data) - len(names)
    starts = [{"log_gamma": data[0][1], "alpha": alpha, "beta": beta} for alpha, beta in _STARTS]
    if "beta" not in names:
        starts = [{**start, "beta": 0.0} for start in starts]
    best = min((_minimum(data, names, start) for start in starts), key=lambda minimum: minimum[0])
    return Fit(
        law=law,
        parameters={
            name.removeprefix("log_"): _estimate(data, names, name, best, degrees) for name in names
        },
        deviation=math.sqrt(best[0] / degrees) if degrees > 0 else math.nan,
        degrees=degrees,
        lack_of_fit=_lack_of_fit(runs, best[0], len(names)),
        sizes=tuple(sizes),
    )


def _lack_of_fit(
    runs: Mapping[int, Sequence[float]], squares: float, parameters: int
) -> float | None:
    """Return the p-value of the F test for lack of fit; `squares`: of all residuals."""
    logs = [[math.log(throughput) for throughput in group] for group in runs.values()]
    spare_sizes = len(logs) - parameters
    repeats = sum(len(group) - 1 for group in logs)
    if spare_sizes < 1 or repeats < 1:
        return None
    pure_error = math.fsum(
        (log - math.fsum(group) / len(group)) ** 2 for group in logs for log in group
    )
    lack = max(0.0, squares - pure_error)
    rounding = _ROUNDING**2 * repeats
    if pure_error <= rounding:
        return 1.0 if lack <= rounding else 0.0
    return quantiles.f_tail(lack / spare_sizes / (pure_error / repeats), spare_sizes, repeats)


def _slowdown(size: float, alpha: float, beta: float) -> float:
    return 1.0 + alpha * (size - 1.0) + beta * size * (size - 1.0)


#: The size and the logarithm of the throughput of each run.
_Data: TypeAlias = Sequence[tuple[int, float]]
#: Sum of squared residuals, and the parameters.
_Minimum: TypeAlias = tuple[float, Mapping[str, float]]


def _residuals(data: _Data, values: Mapping[str, float]) -> list[float]:
    return [
        log
        - values["log_gamma"]
        - math.log(size / _slowdown(size, values["alpha"], values["beta"]))
        for size, log in data
    ]


def _minimum(data: _Data, free: Sequence[str], start: Mapping[str, float]) -> _Minimum:
    """Minimise over the free parameters, within _BOUNDS, by the Levenberg-Marquardt method."""
    values, residuals, damping = start, _residuals(data, start), 1e-3
    squares = _product(residuals, residuals)
    for _ in range(_MAX_STEPS):
        columns = {name: _derivatives(data, name, values) for name in free}
        gradient = {name: _product(columns[name], residuals) for name in free}
        # A parameter at its bound that is pushed outwards stays there.
        active = [
            name
            for name in free
            if not (values[name] <= _BOUNDS[name][0] and gradient[name] > 0.0)
            and not (values[name] >= _BOUNDS[name][1] and gradient[name] < 0.0)
        ]
        matrix = [[_product(columns[row], columns[column]) for column in active] for row in active]
        for index, row in enumerate(matrix):
            row[index] *= 1.0 + damping
        steps = _solve(matrix, [-gradient[name] for name in active])
        tried = dict(values)
        for name, step in zip(active, steps, strict=True):
            low, high = _BOUNDS[name]
            tried[name] = min(max(tried[name] + step, low), high)
        tried_residuals = _residuals(data, tried)
        gain = squares - (tried_squares := _product(tried_residuals, tried_residuals))
        if gain > 0.0:
            values, residuals, squares = tried, tried_residuals, tried_squares
            damping = max(damping / 10.0, 1e-12)
            if gain <= 1e-15 * squares:
                break
        elif damping > 1e8 or not active:
            break
        else:
            damping *= 10.0
    return squares, values


def _derivatives(data: _Data, name: str, values: Mapping[str, float]) -> list[float]:
    """Return the derivatives of the residuals by a parameter."""
    if name == "log_gamma":
        return [-1.0] * len(data)
    return [
        (size - 1.0)
        * (size if name == "beta" else 1.0)
        / _slowdown(size, values["alpha"], values["beta"])
        for size, _ in data
    ]


def _product(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve linear equations with a positive definite matrix, by Gaussian elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(rows):
        for j, row in enumerate(rows):
            if i != j:
                factor = row[i] / pivot[i]
                row[:] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def _estimate(
    data: _Data, names: Sequence[str], name: str, best: _Minimum, degrees: int
) -> Estimate:
    convert: Callable[[float], float] = quantiles.exp if name == "log_gamma" else float
    (squares, values), bounds = best, _BOUNDS[name]
    value = values[name]
    at_bound = value in bounds
    if degrees < 1:
        return Estimate(value=convert(value), at_bound=at_bound)
    if squares <= _ROUNDING**2 * degrees:
        exact = convert(value)
        return Estimate(value=exact, low=exact, high=exact, at_bound=at_bound)
    quantile = quantiles.student_t(0.95 if at_bound else 0.975, degrees)
    limit = quantile * math.sqrt(squares / degrees)
    remaining = [free for free in names if free != name]

    def excess(trial: float) -> float:
        # The root of the likelihood ratio is nearly linear in the parameter.
        profile, _ = _minimum(data, remaining, {**values, name: trial})
        return math.sqrt(max(0.0, profile - squares)) - limit

    step = max(abs(value), 1e-6) if name != "log_gamma" else 0.01
    low = value if value == bounds[0] else _crossing(excess, value, -step, bounds)
    high = value if value == bounds[1] else _crossing(excess, value, step, bounds)
    return Estimate(value=convert(value), low=convert(low), high=convert(high), at_bound=at_bound)


def _crossing(
    excess: Callable[[float], float], start: float, step: float, bounds: tuple[float, float]
) -> float:
    """Return where `excess` becomes positive on the way from `start`; at most the bound."""
    inside, at_inside = start, excess(start)
    outside = start
    while True:
        outside = min(max(outside + step, bounds[0]), bounds[1])
        at_outside = excess(outside)
        if at_outside >= 0.0:
            break
        if outside in bounds:
            return outside
        inside, at_inside, step = outside, at_outside, 2.0 * step
    for count in range(_MAX_STEPS):
        # Regula falsi; a bisection now and then, because one end may stay.
        share = 0.5 if count % 4 == 3 else at_inside / (at_inside - at_outside)
        middle = inside + share * (outside - inside)
        at_middle = excess(middle)
        if abs(at_middle) <= 1e-6 * abs(at_inside - at_outside) or middle in (inside, outside):
            return middle
        if at_middle < 0.0:
            inside, at_inside = middle, at_middle
        else:
            outside, at_outside = middle, at_middle
    return middle
