"""Scaling laws fitted to throughputs: Amdahl's, and the Universal Scalability Law.

X(p) = gamma p / (1 + alpha (p - 1) + beta p (p - 1)): gamma is the throughput of one GPU, alpha the
share of contention, beta the cost of coherency (Gunther, Guerrilla Capacity Planning, 2007).
Amdahl's law is the same with beta = 0; alpha is then its serial share.

Noise of throughputs grows with them, so the fit is of logarithms, by least squares. Intervals are
profile likelihood's: all values whose best fit is not worse than F(1, n - k) allows (Bates and
Watts, Nonlinear Regression Analysis, 1988, 6.1). An estimate at its bound gets a one-sided one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from orchestrator.scaling import quantiles

#: Sizes that the Universal Scalability Law needs: it has three parameters.
USL_SIZES = 4
#: A fit says nothing of sizes beyond this many times the largest one.
REACH = 2.0

#: Where the search begins: no loss at all, little, and much.
_GUESSES = ((0.0, 0.0), (0.02, 1e-4), (0.2, 1e-2))
#: Ten are enough from a good guess.
_MOST_STEPS = 200
#: Runs that lie nearer to a law, as a share of their throughput, lie on it: the rest is rounding.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with the interval that holds the true one in 95 of 100 studies."""

    value: float
    #: none: too few runs to tell
    low: float | None = None
    high: float | None = None
    #: at the end of what is possible; the interval is one-sided
    at_bound: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """A scaling law with its parameters."""

    #: amdahl or usl
    law: str
    #: gamma, alpha (Amdahl's serial share) and, for usl, beta
    parameters: Mapping[str, Estimate]
    #: standard deviation of a run around the law, as a share of its throughput
    deviation: float
    #: runs less parameters
    degrees: int
    #: the sizes that it was fitted to
    sizes: tuple[int, ...]

    def throughput(self, gpus: float) -> float:
        """Return what the law says, in the unit of the throughputs."""
        alpha = self.parameters["alpha"].value
        beta = self.parameters["beta"].value if "beta" in self.parameters else 0.0
        return self.parameters["gamma"].value * gpus / _slowdown(gpus, alpha, beta)

    def efficiency(self, gpus: float) -> float:
        """Return the throughput a GPU against that of the smallest size fitted."""
        base = self.sizes[0]
        return (self.throughput(gpus) / gpus) / (self.throughput(base) / base)

    def reaches(self, gpus: float) -> bool:
        """Return whether the law may be asked about this size at all."""
        return gpus <= REACH * self.sizes[-1]

    def most_gpus(self, efficiency: float) -> tuple[int, bool]:
        """Return the most GPUs that keep the efficiency, and whether REACH ended the search."""
        limit = int(REACH * self.sizes[-1])
        best = self.sizes[0]
        for gpus in range(self.sizes[0], limit + 1):
            if self.efficiency(gpus) < efficiency:
                return best, False
            best = gpus
        return best, True

    def peak(self) -> float | None:
        """Return the size after which more GPUs are slower; none where the law has no such."""
        beta = self.parameters.get("beta")
        if beta is None or beta.value <= 0.0:
            return None
        return math.sqrt(max(0.0, 1.0 - self.parameters["alpha"].value) / beta.value)


@dataclasses.dataclass(frozen=True)
class _Cell:
    """The runs of one size: all that least squares needs of them."""

    gpus: int
    count: int
    mean_log: float
    #: sum of squared distances of the runs' logarithms from their mean
    within: float


def amdahl(runs: Mapping[int, Sequence[float]]) -> Fit | None:
    """Fit Amdahl's law to throughputs by number of GPUs; None for fewer than two sizes.

    ValueError for a throughput that is not positive.
    """
    return _fit(runs, "amdahl", ("alpha",)) if len(runs) >= 2 else None


def usl(runs: Mapping[int, Sequence[float]]) -> Fit | None:
    """Fit the Universal Scalability Law; None for fewer than USL_SIZES sizes."""
    return _fit(runs, "usl", ("alpha", "beta")) if len(runs) >= USL_SIZES else None


def _fit(runs: Mapping[int, Sequence[float]], law: str, free: tuple[str, ...]) -> Fit:
    cells = [_cell(gpus, runs[gpus]) for gpus in sorted(runs)]
    count = sum(cell.count for cell in cells)
    degrees = count - 1 - len(free)
    best = _best(cells, free, {})
    names = ("gamma", *free)
    estimates = {name: _estimate(cells, free, name, best, degrees) for name in names}
    return Fit(
        law=law,
        parameters=estimates,
        deviation=math.sqrt(best.squares / degrees) if degrees > 0 else math.nan,
        degrees=degrees,
        sizes=tuple(cell.gpus for cell in cells),
    )


def _cell(gpus: int, throughputs: Sequence[float]) -> _Cell:
    if gpus < 1 or not throughputs or not all(0.0 < one < math.inf for one in throughputs):
        raise ValueError(f"throughputs of {gpus} GPUs must be positive numbers: {throughputs!r}")
    logs = [math.log(one) for one in throughputs]
    mean = math.fsum(logs) / len(logs)
    within = math.fsum((one - mean) ** 2 for one in logs)
    return _Cell(gpus, len(logs), mean, within)


def _slowdown(gpus: float, alpha: float, beta: float) -> float:
    return 1.0 + alpha * (gpus - 1.0) + beta * gpus * (gpus - 1.0)


@dataclasses.dataclass(frozen=True)
class _Best:
    """The best fit with some parameters held."""

    squares: float
    log_gamma: float
    alpha: float
    beta: float

    def value(self, name: str) -> float:
        return {"gamma": self.log_gamma, "alpha": self.alpha, "beta": self.beta}[name]


def _best(
    cells: Sequence[_Cell],
    free: Sequence[str],
    held: Mapping[str, float],
    near: _Best | None = None,
) -> _Best:
    """Return the best fit over the parameters that are free and not held; `near`: a guess."""
    moving = tuple(name for name in free if name not in held)
    if near is not None:
        guesses = [{"alpha": near.alpha, "beta": near.beta}]
    else:
        guesses = [{"alpha": alpha, "beta": beta} for alpha, beta in _GUESSES]
    found = [_descend(cells, moving, {**_fixed(guess, moving, free), **held}) for guess in guesses]
    return min(found, key=lambda one: one.squares)


def _fixed(
    guess: Mapping[str, float], moving: Sequence[str], free: Sequence[str]
) -> dict[str, float]:
    """Return where to start: what the law does not have is nothing."""
    return {name: guess[name] if name in free else 0.0 for name in ("alpha", "beta")}


def _descend(cells: Sequence[_Cell], moving: Sequence[str], start: Mapping[str, float]) -> _Best:
    """Go down from `start` by Levenberg and Marquardt's steps, within 0 and 1."""
    here, damping = _at(cells, start), 1e-3
    values = dict(start)
    for _ in range(_MOST_STEPS):
        gradient, curvature = _derivatives(cells, moving, here, "gamma" in start)
        # What stands at its bound and is pushed outwards stays there.
        active = [
            index
            for index, name in enumerate(moving)
            if not (values[name] <= 0.0 and gradient[index] > 0.0)
            and not (values[name] >= 1.0 and gradient[index] < 0.0)
        ]
        steps = _solve(gradient, curvature, active, damping)
        tried = dict(values)
        for index, step in zip(active, steps, strict=True):
            name = moving[index]
            tried[name] = min(max(values[name] + step, 0.0), 1.0)
        there = _at(cells, tried)
        gain = here.squares - there.squares
        if gain > 0.0:
            values, here, damping = tried, there, max(damping / 10.0, 1e-12)
            if gain <= 1e-15 * here.squares:
                break
        elif damping > 1e8 or not active:
            break
        else:
            damping *= 10.0
    return here


def _at(cells: Sequence[_Cell], values: Mapping[str, float]) -> _Best:
    """Return the sum of squares there; gamma is the best one unless it is given."""
    alpha, beta = values["alpha"], values["beta"]
    rests = [
        cell.mean_log - math.log(cell.gpus / _slowdown(cell.gpus, alpha, beta)) for cell in cells
    ]
    log_gamma = values["gamma"] if "gamma" in values else _weighted(cells, rests)
    squares = math.fsum(
        cell.count * (rest - log_gamma) ** 2 + cell.within
        for cell, rest in zip(cells, rests, strict=True)
    )
    return _Best(squares, log_gamma, alpha, beta)


def _derivatives(
    cells: Sequence[_Cell], moving: Sequence[str], here: _Best, gamma_is_held: bool
) -> tuple[list[float], list[list[float]]]:
    """Return half the gradient of the sum of squares, and Gauss and Newton's matrix."""
    slow = [_slowdown(cell.gpus, here.alpha, here.beta) for cell in cells]
    rests = [
        cell.mean_log - math.log(cell.gpus / one) - here.log_gamma
        for cell, one in zip(cells, slow, strict=True)
    ]
    columns = []
    for name in moving:
        column = [
            (cell.gpus - 1.0) * (cell.gpus if name == "beta" else 1.0) / one
            for cell, one in zip(cells, slow, strict=True)
        ]
        # A gamma that follows takes the mean of each column away.
        mean = 0.0 if gamma_is_held else _weighted(cells, column)
        columns.append([entry - mean for entry in column])
    counts = [cell.count for cell in cells]

    def product(left: Sequence[float], right: Sequence[float]) -> float:
        return math.fsum(n * a * b for n, a, b in zip(counts, left, right, strict=True))

    gradient = [product(column, rests) for column in columns]
    return gradient, [[product(one, other) for other in columns] for one in columns]


def _weighted(cells: Sequence[_Cell], values: Sequence[float]) -> float:
    total = sum(cell.count for cell in cells)
    return math.fsum(c.count * value for c, value in zip(cells, values, strict=True)) / total


def _solve(
    gradient: Sequence[float],
    curvature: Sequence[Sequence[float]],
    active: Sequence[int],
    damping: float,
) -> list[float]:
    """Return the damped steps of the active parameters, one or two."""
    grown = 1.0 + damping
    if len(active) == 1:
        (i,) = active
        return [-gradient[i] / (curvature[i][i] * grown)]
    if len(active) == 2:
        i, j = active
        a, b, d = curvature[i][i] * grown, curvature[i][j], curvature[j][j] * grown
        determinant = a * d - b * b
        return [
            (-gradient[i] * d + gradient[j] * b) / determinant,
            (-gradient[j] * a + gradient[i] * b) / determinant,
        ]
    return []


def _estimate(
    cells: Sequence[_Cell], free: Sequence[str], name: str, best: _Best, degrees: int
) -> Estimate:
    shown: Callable[[float], float] = quantiles.exp if name == "gamma" else float
    value = best.value(name)
    bounds = (-math.inf, math.inf) if name == "gamma" else (0.0, 1.0)
    at_bound = value in bounds
    if degrees < 1:
        return Estimate(value=shown(value), at_bound=at_bound)
    if best.squares <= _ROUNDING**2 * degrees:
        exact = shown(value)
        return Estimate(value=exact, low=exact, high=exact, at_bound=at_bound)
    quantile = quantiles.student_t(0.95 if at_bound else 0.975, degrees)
    limit = best.squares * (1.0 + quantile**2 / degrees)

    def excess(trial: float) -> float:
        return _best(cells, free, {name: trial}, best).squares - limit

    step = max(abs(value), 1e-6) if name != "gamma" else 0.01
    low = bounds[0] if value == bounds[0] else _crossing(excess, value, -step, bounds)
    high = bounds[1] if value == bounds[1] else _crossing(excess, value, step, bounds)
    return Estimate(value=shown(value), low=shown(low), high=shown(high), at_bound=at_bound)


def _crossing(
    excess: Callable[[float], float], start: float, step: float, bounds: tuple[float, float]
) -> float:
    """Return where `excess` turns positive on the way from `start`, or the bound before that."""
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
    # Regula falsi, with the Illinois rule against an end that stays (Dowell and Jarratt, 1971).
    side = 0
    for _ in range(_MOST_STEPS):
        if at_outside <= at_inside:
            # The law goes through all runs: what is left of the squares is rounding.
            return outside
        middle = (inside * at_outside - outside * at_inside) / (at_outside - at_inside)
        if abs(outside - inside) <= 1e-6 * max(abs(outside), abs(inside)) + 1e-12:
            break
        value = excess(middle)
        if abs(value) <= 1e-6 * (at_outside - at_inside):
            return middle
        if value >= 0.0:
            outside, at_outside = middle, value
            at_inside *= 0.5 if side == 1 else 1.0
            side = 1
        else:
            inside, at_inside = middle, value
            at_outside *= 0.5 if side == -1 else 1.0
            side = -1
    return middle
