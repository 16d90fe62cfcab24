"""Speedup and efficiency of a scaling study, with confidence intervals.

Each run has one throughput, in samples/s over all ranks: the median of its windows after warm-up.
Confidence intervals come from repeats, because windows of one run share nodes, neighbours and
clocks. A single run has only an interval of its windows.

Repeats are combined by the geometric mean, and intervals are those of logarithms: speedup and
efficiency are ratios, and the noise of a throughput grows with it (Hoefler and Belli, SC15, rules
3, 5 and 12). A run that is far from the other runs of its size is left out: one noisy node changes
nothing.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection, Sequence

from orchestrator.scaling import fits, quantiles
from orchestrator.scaling.fits import Estimate, Fit

#: A larger efficiency means that something slowed the smallest size down.
MAX_EFFICIENCY = 1.05
CONFIDENCE = 0.95
#: The median absolute deviation times this is a standard deviation.
NORMAL_MAD = 1.4826
#: An outlier differs from the median by more than this many deviations. Without a noisy node, one
#: run in a hundred studies does; the intervals then still cover in 93 to 96 of 100 studies.
_OUTLIER_DEVIATIONS = 6.0
#: An outlier also differs from the median by more than this share.
_OUTLIER_SHARE = 0.05
#: With two runs it is unknown which one is wrong.
_OUTLIER_RUNS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one size."""

    #: number of GPUs, ranks or nodes
    size: int
    #: samples/s over all ranks: median of the windows or epochs
    throughput: float
    #: throughput of each window after warm-up; empty: unknown
    windows: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """All runs of one size except outliers."""

    size: int
    runs: int
    windows: int
    throughput: Estimate
    #: what the throughput's interval comes from: repeats, windows or none
    interval_of: str
    #: throughput relative to that of the smallest size
    speedup: Estimate
    #: speedup relative to the increase in size; 1 is ideal
    efficiency: Estimate
    #: experimentally determined serial fraction (Karp-Flatt metric); None at the smallest size, or
    #: if the throughput falls below what any fraction explains
    serial_fraction: Estimate | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """All sizes of one curve."""

    points: tuple[Point, ...]
    #: RMS deviation of repeats as a share of the throughput; None without repeats
    deviation: float | None
    amdahl: Fit | None
    usl: Fit | None
    #: indices of the runs that are left out as outliers
    left_out: tuple[int, ...]
    #: sentences
    warnings: tuple[str, ...]

    @property
    def baseline_is_valid(self) -> bool:
        """Whether no size is more efficient than the smallest one could be."""
        return all(point.efficiency.value <= MAX_EFFICIENCY for point in self.points)


def study(runs: Sequence[Run], unit: str = "GPUs") -> Study:
    """Return points and fits of runs that differ only in their size; `unit` is used in warnings.

    ValueError for no runs, or for a throughput that is not positive.
    """
    by_size: dict[int, list[int]] = {}
    for index, run in enumerate(runs):
        if run.size < 1 or not 0.0 < run.throughput < math.inf:
            raise ValueError(f"not a run: {run.size} GPUs, throughput {run.throughput}")
        by_size.setdefault(run.size, []).append(index)
    if not by_size:
        raise ValueError("no runs")
    outliers = _outliers(runs, by_size.values())
    kept = [
        [runs[index] for index in by_size[size] if index not in outliers]
        for size in sorted(by_size)
    ]
    spread = _spread(kept)
    points = tuple(_point(group, kept[0], spread) for group in kept)
    throughputs = {group[0].size: [run.throughput for run in group] for group in kept}
    return Study(
        points=points,
        deviation=spread.deviation if spread.degrees else None,
        amdahl=fits.amdahl(throughputs),
        usl=fits.usl(throughputs),
        left_out=tuple(sorted(outliers)),
        warnings=tuple(_warnings(points, unit)),
    )


@dataclasses.dataclass(frozen=True)
class _Spread:
    """Standard deviation of the logarithms of repeats, pooled over all sizes."""

    deviation: float
    degrees: int

    def margin(self, *counts: int) -> float | None:
        """Return half the interval of a sum of means, each of so many logarithms."""
        if not self.degrees:
            return None
        error = self.deviation * math.sqrt(sum(1.0 / count for count in counts))
        return quantiles.student_t((1.0 + CONFIDENCE) / 2.0, self.degrees) * error


def _spread(groups: Sequence[Sequence[Run]]) -> _Spread:
    degrees = sum(len(group) - 1 for group in groups)
    logs = [[math.log(run.throughput) for run in group] for group in groups]
    squares = math.fsum((log - statistics.fmean(own)) ** 2 for own in logs for log in own)
    return _Spread(math.sqrt(squares / max(degrees, 1)), degrees)


def _outliers(runs: Sequence[Run], groups: Collection[Sequence[int]]) -> set[int]:
    """Return the indices of runs that are far from the median of their size.

    The usual distance is the median over all sizes: three runs alone are too few to estimate it.
    """
    distances: dict[int, float] = {}
    informative: list[float] = []
    repeated = [group for group in groups if len(group) >= _OUTLIER_RUNS]
    for group in repeated:
        median = statistics.median(runs[index].throughput for index in group)
        own = {index: abs(math.log(runs[index].throughput / median)) for index in group}
        distances |= own
        # In an odd number of runs, one is the median itself.
        informative += sorted(own.values())[len(group) % 2 :]
    if not informative:
        return set()
    usual = NORMAL_MAD * statistics.median(informative)
    limit = max(_OUTLIER_DEVIATIONS * usual, _OUTLIER_SHARE)
    outliers: set[int] = set()
    for group in repeated:
        far = {index for index in group if distances[index] > limit}
        # If half of the runs are far, it is unknown which half is wrong.
        outliers |= far if 2 * len(far) < len(group) else set()
    return outliers


def _point(group: Sequence[Run], base: Sequence[Run], spread: _Spread) -> Point:
    size, base_size, is_base = group[0].size, base[0].size, group is base
    log = _mean_log(group)
    throughput, interval_of = _throughput(group, log, spread)
    margin = None if is_base else spread.margin(len(group), len(base))
    relative = log - _mean_log(base)
    efficiency = _ratio(relative - math.log(size / base_size), margin)
    return Point(
        size=size,
        runs=len(group),
        windows=sum(len(run.windows) for run in group),
        throughput=throughput,
        interval_of=interval_of,
        speedup=_ratio(relative, margin),
        efficiency=efficiency,
        serial_fraction=None if is_base else _serial_fraction(efficiency, size, base_size),
    )


def _throughput(group: Sequence[Run], log: float, spread: _Spread) -> tuple[Estimate, str]:
    margin = spread.margin(len(group))
    if margin is not None:
        return _ratio(log, margin), "repeats"
    # Without repeats, each size has one run.
    interval = quantiles.median_interval(group[0].windows, CONFIDENCE)
    value = quantiles.exp(log)
    if interval is None:
        return Estimate(value=value), "none"
    # A throughput that is a mean may lie beside the interval of the median.
    low, high = min(value, interval[0]), max(value, interval[1])
    return Estimate(value=value, low=low, high=high), "windows"


def _ratio(log: float, margin: float | None) -> Estimate:
    if margin is None:
        return Estimate(value=quantiles.exp(log))
    return Estimate(
        value=quantiles.exp(log), low=quantiles.exp(log - margin), high=quantiles.exp(log + margin)
    )


def _serial_fraction(efficiency: Estimate, size: int, base_size: int) -> Estimate | None:
    """Return the alpha of Amdahl's law through this size and the smallest.

    From one GPU on it is (1/S - 1/p) / (1 - 1/p) (Karp and Flatt, CACM 33(5), 1990). It falls as
    the efficiency rises.
    """

    def fraction(value: float | None) -> float | None:
        if value is None:
            return None
        divisor = value * (size - 1) - (base_size - 1)
        return (1.0 - value) / divisor if divisor > 0.0 else None

    value = fraction(efficiency.value)
    if value is None:
        return None
    return Estimate(value=value, low=fraction(efficiency.high), high=fraction(efficiency.low))


def _mean_log(group: Sequence[Run]) -> float:
    return statistics.fmean(math.log(run.throughput) for run in group)


def _warnings(points: Sequence[Point], unit: str) -> list[str]:
    warnings = [
        f"efficiency {point.efficiency.value:.2f} at {point.size} {unit}: the runs at "
        f"{points[0].size} are not a valid baseline (something else slowed them down)"
        for point in points
        if point.efficiency.value > MAX_EFFICIENCY
    ]
    single = [point.size for point in points if point.runs == 1]
    if len(single) == len(points):
        warnings.append(
            "no size was repeated: confidence intervals, if any, cover only the windows of one run"
        )
    elif single:
        warnings.append(f"not repeated: {', '.join(map(str, single))} {unit}")
    return warnings
