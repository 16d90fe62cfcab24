"""Scaling studies: speedup and efficiency with intervals, scaling laws, and what spoils them.

Throughput is what a study is about: samples a second over all ranks, one number a run (the median
of its windows after the warm-up). The spread that counts is that between runs: windows of one run
share nodes, neighbours and clocks. So intervals come from repeats; a single run has one of its
windows alone, and says so.

Repeats are combined by the geometric mean, and intervals are of logarithms: speedup and efficiency
are ratios, and a throughput's noise grows with it (Hoefler and Belli, SC15, rules 3, 5 and 12).
A run that is far from the others of its size is left out, and told: one noisy node moves nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.scaling import fits, quantiles
from orchestrator.scaling.fits import Estimate, Fit

__all__ = ["Estimate", "Fit", "Point", "Run", "Study", "differences", "fits", "study"]

#: Above it the smallest size was slowed down by something: no size makes a GPU faster by itself.
TOO_EFFICIENT = 1.05
_CONFIDENCE = 0.95
#: A run is far from the others so many usual distances from their median: without a noisy node one
#: run in a hundred studies is, and the intervals hold the truth in 93 to 96 of 100 all the same ...
_FAR_DISTANCES = 6.0
#: ... and by this share at the least.
_FAR_SHARE = 0.05
#: Of two runs nobody knows which one is wrong.
_FAR_RUNS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run of one size."""

    #: ranks, where there is no GPU
    gpus: int
    #: samples a second over all ranks, median of the windows
    throughput: float
    #: throughput of each window after the warm-up; none: only the one number is known
    windows: tuple[float, ...] = ()
    #: what a run has besides its size: precision, model, node list ... as text
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """All runs of one size but those that are too far from the others."""

    gpus: int
    runs: int
    windows: int
    throughput: Estimate
    #: where the interval of the throughput comes from: repeats, windows or none
    interval_of: str
    #: throughput against that of the smallest size
    speedup: Estimate
    #: speedup by how much more GPUs there are; 1 is ideal
    efficiency: Estimate
    #: Karp and Flatt's experimentally determined serial share; none at the smallest size, and
    #: where the throughput falls more than any share makes it
    serial_share: Estimate | None
    #: the smallest size does not compare: efficiency above TOO_EFFICIENT
    too_efficient: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """What the runs of one curve say together."""

    points: tuple[Point, ...]
    #: standard deviation between repeats as a share of the throughput; none without repeats
    deviation: float | None
    amdahl: Fit | None
    usl: Fit | None
    #: places of the runs that count for nothing: too far from the others of their size
    left_out: tuple[int, ...]
    #: sentences about what a reader has to know before believing the numbers
    warnings: tuple[str, ...]


def study(runs: Sequence[Run], unit: str = "GPUs") -> Study:
    """Return the table and the fits of runs that differ in their size alone.

    `unit`: what sizes count, for the warnings.
    ValueError for no runs, or for a throughput that is not positive.
    """
    by_size: dict[int, list[int]] = {}
    for place, run in enumerate(runs):
        if run.gpus < 1 or not 0.0 < run.throughput < math.inf:
            raise ValueError(f"not a run: {run.gpus} GPUs, throughput {run.throughput}")
        by_size.setdefault(run.gpus, []).append(place)
    if not by_size:
        raise ValueError("no runs")
    far = _far(runs, by_size.values())
    sizes = {
        gpus: [runs[place] for place in by_size[gpus] if place not in far]
        for gpus in sorted(by_size)
    }
    spread = _Spread.of(list(sizes.values()))
    base = next(iter(sizes.values()))
    points = tuple(_point(these, base, spread) for these in sizes.values())
    throughputs = {gpus: [run.throughput for run in these] for gpus, these in sizes.items()}
    return Study(
        points=points,
        deviation=spread.deviation if spread.degrees else None,
        amdahl=fits.amdahl(throughputs),
        usl=fits.usl(throughputs),
        left_out=tuple(sorted(far)),
        warnings=tuple(_warnings(points, unit)),
    )


def differences(
    runs: Sequence[Run], expected: frozenset[str] = frozenset()
) -> dict[str, dict[str, list[int]]]:
    """Return the attributes in which runs differ though they should not: value -> sizes.

    `expected`: those that belong to the size (nodes, the batch that follows it).
    """
    found: dict[str, dict[str, list[int]]] = {}
    names = dict.fromkeys(name for run in runs for name in run.attributes)
    for name in names:
        if name in expected:
            continue
        values: dict[str, list[int]] = {}
        for run in runs:
            sizes = values.setdefault(run.attributes.get(name, "unknown"), [])
            if run.gpus not in sizes:
                sizes.append(run.gpus)
        if len(values) > 1:
            found[name] = values
    return found


@dataclasses.dataclass(frozen=True)
class _Spread:
    """How runs of one size differ, pooled over the sizes that were repeated."""

    deviation: float
    degrees: int

    @classmethod
    def of(cls, groups: Sequence[Sequence[Run]]) -> _Spread:
        squares, degrees = 0.0, 0
        for group in groups:
            logs = [math.log(run.throughput) for run in group]
            mean = math.fsum(logs) / len(logs)
            squares += math.fsum((one - mean) ** 2 for one in logs)
            degrees += len(logs) - 1
        return cls(math.sqrt(squares / degrees) if degrees else 0.0, degrees)

    def margin(self, *counts: int) -> float | None:
        """Return half the interval of a sum of means of so many logarithms each."""
        if not self.degrees:
            return None
        error = self.deviation * math.sqrt(sum(1.0 / count for count in counts))
        return quantiles.student_t((1.0 + _CONFIDENCE) / 2.0, self.degrees) * error


def _far(runs: Sequence[Run], groups: Iterable[Sequence[int]]) -> set[int]:
    """Return the places of runs that are far from the others of their size.

    What is usual is the median distance over all sizes: three runs alone can't tell it.
    """
    distances: dict[int, float] = {}
    told: list[float] = []
    repeated = [group for group in groups if len(group) >= _FAR_RUNS]
    for group in repeated:
        middle = quantiles.median([runs[place].throughput for place in group])
        found = {place: abs(math.log(runs[place].throughput / middle)) for place in group}
        distances |= found
        # Of an odd number one is the median itself, and says nothing.
        told += sorted(found.values())[len(group) % 2 :]
    if not told:
        return set()
    # 1.4826 median distances make a standard deviation.
    limit = max(_FAR_DISTANCES * 1.4826 * quantiles.median(told), _FAR_SHARE)
    far: set[int] = set()
    for group in repeated:
        these = {place for place in group if distances[place] > limit}
        # Where half of them are far, nobody knows which.
        far |= these if 2 * len(these) < len(group) else set()
    return far


def _point(these: Sequence[Run], base: Sequence[Run], spread: _Spread) -> Point:
    gpus, base_gpus = these[0].gpus, base[0].gpus
    log, base_log = _mean_log(these), _mean_log(base)
    throughput, interval_of = _throughput(these, log, spread)
    more = gpus / base_gpus
    same = these is base
    speedup = _ratio(log - base_log, None if same else spread.margin(len(these), len(base)))
    efficiency = dataclasses.replace(
        speedup,
        value=speedup.value / more,
        low=None if speedup.low is None else speedup.low / more,
        high=None if speedup.high is None else speedup.high / more,
    )
    return Point(
        gpus=gpus,
        runs=len(these),
        windows=sum(len(run.windows) for run in these),
        throughput=throughput,
        interval_of=interval_of,
        speedup=speedup,
        efficiency=efficiency,
        serial_share=None if same else _serial_share(efficiency, gpus, base_gpus),
        too_efficient=efficiency.value > TOO_EFFICIENT,
    )


def _throughput(these: Sequence[Run], log: float, spread: _Spread) -> tuple[Estimate, str]:
    margin = spread.margin(len(these))
    if margin is not None:
        return _ratio(log, margin), "repeats"
    # Nothing was repeated, so there is one run of this size.
    interval = quantiles.median_interval(these[0].windows, _CONFIDENCE)
    if interval is None:
        return Estimate(value=quantiles.exp(log)), "none"
    value = quantiles.exp(log)
    # A mean of all windows may lie beside the interval of their median.
    low, high = min(value, interval[0]), max(value, interval[1])
    return Estimate(value=value, low=low, high=high), "windows"


def _ratio(log: float, margin: float | None) -> Estimate:
    if margin is None:
        return Estimate(value=quantiles.exp(log))
    return Estimate(
        value=quantiles.exp(log), low=quantiles.exp(log - margin), high=quantiles.exp(log + margin)
    )


def _serial_share(efficiency: Estimate, gpus: int, base_gpus: int) -> Estimate | None:
    """Return the alpha of Amdahl's law that goes through this size and the smallest.

    From one GPU on it is Karp and Flatt's (1/S - 1/p) / (1 - 1/p) (CACM 33(5), 1990). It falls as
    the efficiency grows. None: slower than any share makes it.
    """

    def share(value: float | None) -> float | None:
        if value is None:
            return None
        below = value * (gpus - 1) - (base_gpus - 1)
        return (1.0 - value) / below if below > 0.0 else None

    found = share(efficiency.value)
    if found is None:
        return None
    return Estimate(value=found, low=share(efficiency.high), high=share(efficiency.low))


def _mean_log(these: Sequence[Run]) -> float:
    return math.fsum(math.log(run.throughput) for run in these) / len(these)


def _warnings(points: Sequence[Point], unit: str) -> list[str]:
    told: list[str] = []
    base = points[0]
    for point in points:
        if point.too_efficient:
            told.append(
                f"efficiency {point.efficiency.value:.2f} at {point.gpus} {unit}: the baseline of "
                f"{base.gpus} does not compare (something else slowed it down)"
            )
    single = [point.gpus for point in points if point.runs == 1]
    if single and any(point.runs > 1 for point in points):
        told.append(f"not repeated: {', '.join(map(str, single))} {unit}")
    elif single:
        told.append(
            "no size was repeated: intervals, where there are any, are of one run's windows"
        )
    return told
