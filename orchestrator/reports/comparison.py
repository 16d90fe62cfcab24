"""Runs against a baseline: slower, faster, or no evidence; per size and metric."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from orchestrator.reports import curves, notes, records
from orchestrator.reports import display as words
from orchestrator.scaling import regression


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """A number of a run that is compared."""

    value: Callable[[records.Measurement], float | None]
    higher_is_better: bool
    #: share below which a difference is none, however sure it is
    threshold: float
    #: what worse and better are called
    words: tuple[str, str] = ("worse", "better")


_PACE = ("slower", "faster")
METRICS: Mapping[str, Metric] = {
    "throughput": Metric(
        value=lambda one: one.throughput, higher_is_better=True, threshold=0.02, words=_PACE
    ),
    "epoch_time": Metric(
        value=lambda one: one.epoch_seconds, higher_is_better=False, threshold=0.02, words=_PACE
    ),
    "total_time": Metric(
        value=lambda one: one.total_seconds, higher_is_better=False, threshold=0.02, words=_PACE
    ),
    "memory": Metric(
        value=lambda one: max(one.memory_bytes, default=None),
        higher_is_better=False,
        threshold=0.05,
    ),
    "accuracy": Metric(value=lambda one: one.accuracy, higher_is_better=True, threshold=0.01),
}
#: What is compared unless asked: the others say nearly the same, and each further comparison makes
#: all of them less sure.
DEFAULT_METRICS = ("throughput", "accuracy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One comparison."""

    #: attributes in which the runs of one side differ among themselves, "mode=ddp"
    curve: str
    size: int
    metric: str
    comparison: regression.Comparison
    threshold: float
    #: slower, faster, worse, better or no evidence
    verdict: str

    @property
    def is_worse(self) -> bool:
        """Return whether the runs are worse than the baseline, for sure and by enough."""
        return self.comparison.verdict is regression.Verdict.SLOWER


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """All comparisons of runs with a baseline."""

    lines: tuple[Line, ...]
    #: what the baseline has and no run shows now: `4 GPUs, mode=ddp`
    missing: tuple[str, ...]
    #: what a reader has to know besides
    notes: tuple[str, ...]


def compare(
    measurements: Sequence[records.Measurement],
    baseline: Sequence[records.Measurement],
    thresholds: Mapping[str, float] | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    unit: str = "gpus",
) -> Comparison:
    """Compare runs with those of a baseline that are like them.

    Intervals hold for all comparisons together (Bonferroni). What differs between the sides and
    not within them, such as the commit, is what is compared, and is told.
    """
    names = dict.fromkeys((*metrics, *(thresholds or {})))
    new, old, remarks = _sides(measurements, baseline)
    pairs = [(key, name) for key in new for name in names if key in old]
    sides = {
        (key, name): (_values(new[key], METRICS[name]), _values(old[key], METRICS[name]))
        for key, name in pairs
    }
    known = {pair: both for pair, both in sides.items() if all(both)}
    confidence = 1.0 - (1.0 - regression.CONFIDENCE) / max(1, len(known))
    lines = [
        _line(key, name, both, {**_usual(), **(thresholds or {})}[name], confidence)
        for (key, name), both in known.items()
    ]
    remarks += [
        f"not compared, for the baseline has no such runs: {_key_words(key, unit)}"
        for key in new
        if key not in old
    ]
    missing = tuple(_key_words(key, unit) for key in old if key not in new)
    remarks += [f"not compared, for there are no such runs now: {each}" for each in missing]
    for side, runs in (
        *(("", new[key]) for key in new),
        *(("baseline: ", old[key]) for key in old),
    ):
        remarks += [f"{side}{told}" for told in notes.told_outliers(runs, unit)]
    few = sorted({line.size for line in lines if line.comparison.low is None})
    if few:
        remarks.append(f"too few runs for an interval: {words.sizes(few, unit)}; repeat them")
    if len(known) > 1:
        remarks.append(f"the intervals of all {len(known)} together hold the truth 95 times in 100")
    return Comparison(lines=tuple(lines), missing=missing, notes=tuple(remarks))


_Key = tuple[str, int]
_Runs = dict[_Key, list[records.Measurement]]


def _sides(
    measurements: Sequence[records.Measurement], baseline: Sequence[records.Measurement]
) -> tuple[_Runs, _Runs, list[str]]:
    """Return the runs of both sides by what makes them alike, and what differs between sides."""
    attributes = curves.held([*measurements, *baseline])
    mine, theirs = attributes[: len(measurements)], attributes[len(measurements) :]
    names = sorted({name for each in attributes for name in each} - curves.FREE)
    keys, remarks = [], []
    for name in names:
        # What does not state it fits any, as it does in a curve.
        now = {each[name] for each in mine if each.get(name)}
        before = {each[name] for each in theirs if each.get(name)}
        if len(now) < 2 and len(before) < 2:
            if now != before:
                was, is_now = (next(iter(each), "not stated") for each in (before, now))
                remarks.append(f"{name} was {was} and is {is_now}")
        else:
            keys.append(name)
    sides: list[_Runs] = []
    for runs, each in ((measurements, mine), (baseline, theirs)):
        side: _Runs = {}
        for one, has in zip(runs, each, strict=True):
            curve = words.attributes({name: has.get(name, "") for name in keys})
            side.setdefault((curve, one.size), []).append(one)
        sides.append(dict(sorted(side.items())))
    return sides[0], sides[1], remarks


def _values(runs: Sequence[records.Measurement], metric: Metric) -> list[float]:
    found = [metric.value(one) for one in runs]
    return [value for value in found if value is not None and value > 0.0]


def _usual() -> dict[str, float]:
    return {name: metric.threshold for name, metric in METRICS.items()}


def _line(
    key: _Key,
    name: str,
    both: tuple[list[float], list[float]],
    threshold: float,
    confidence: float,
) -> Line:
    metric = METRICS[name]
    found = regression.compare(
        both[0],
        both[1],
        threshold=threshold,
        higher_is_better=metric.higher_is_better,
        confidence=confidence,
    )
    verdict = found.verdict.value
    if found.verdict is not regression.Verdict.NO_EVIDENCE:
        verdict = metric.words[found.verdict is regression.Verdict.FASTER]
    return Line(
        curve=key[0],
        size=key[1],
        metric=name,
        comparison=found,
        threshold=threshold,
        verdict=verdict,
    )


def _key_words(key: _Key, unit: str) -> str:
    return ", ".join(filter(None, (words.size(key[1], unit), key[0])))


def worse(comparison: Comparison, unit: str) -> list[str]:
    """Return what is worse, each in some words."""
    return [
        f"{line.metric} of {_key_words((line.curve, line.size), unit)} is "
        f"{_change(line.comparison.ratio)} ({_interval(line.comparison)})"
        for line in comparison.lines
        if line.is_worse
    ]


#: For people, and for programs.
COLUMNS = ("curve", "size", "metric", "change", "interval", "verdict", "runs", "baseline_runs")
VALUES = (
    "curve",
    "size",
    "metric",
    "ratio",
    "ratio_low",
    "ratio_high",
    "threshold",
    "verdict",
    "runs",
    "baseline_runs",
)


def rows(comparison: Comparison) -> list[dict[str, object]]:
    """Return the lines as they are printed: all numbers, and the words of the table."""
    return [
        {
            "curve": line.curve,
            "size": line.size,
            "metric": line.metric,
            "change": _change(line.comparison.ratio),
            "interval": _interval(line.comparison),
            "verdict": line.verdict,
            "runs": line.comparison.runs,
            "baseline_runs": line.comparison.baseline_runs,
            "ratio": line.comparison.ratio,
            "ratio_low": line.comparison.low,
            "ratio_high": line.comparison.high,
            "threshold": line.threshold,
            "is_worse": line.is_worse,
        }
        for line in comparison.lines
    ]


def _change(ratio: float) -> str:
    return f"{100.0 * (ratio - 1.0):+.1f} %"


def _interval(found: regression.Comparison) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{_change(found.low)} to {_change(found.high)}".replace(" % to", " to")
