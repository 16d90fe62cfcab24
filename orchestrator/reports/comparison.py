"""Compare runs with a baseline, per size and metric: slower, faster or no evidence."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

from orchestrator.reports import curves, display, notes, records
from orchestrator.scaling import regression


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    value: Callable[[records.Measurement], float | None]
    higher_is_better: bool = False
    #: smaller differences are ignored, as a share
    threshold: float = 0.02
    #: names of a change for the worse and for the better
    words: tuple[str, str] = ("slower", "faster")


METRICS: Mapping[str, Metric] = {
    "throughput": Metric(value=lambda run: run.throughput, higher_is_better=True),
    "epoch_time": Metric(value=lambda run: run.epoch_seconds),
    "total_time": Metric(value=lambda run: run.total_seconds),
    "memory": Metric(
        value=lambda run: max(run.memory_bytes, default=None),
        threshold=0.05,
        words=("worse", "better"),
    ),
    "accuracy": Metric(
        value=lambda run: run.accuracy,
        higher_is_better=True,
        threshold=0.01,
        words=("worse", "better"),
    ),
}
#: The other metrics repeat these, and each further comparison widens all confidence intervals.
DEFAULT_METRICS = ("throughput", "accuracy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """The comparison of one size and metric. The names are columns and JSON fields."""

    #: attributes that differ within one side, "mode=ddp"
    curve: str
    size: int
    metric: str
    #: of the ratio, "-5.1 %", and its confidence interval; "": too few runs
    change: str
    interval: str
    #: slower, faster, worse, better or no evidence
    verdict: str
    runs: int
    baseline_runs: int
    #: 0.95: five per cent less than the baseline
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    threshold: float
    is_worse: bool


#: Columns of formats for programs.
VALUES = (
    *("curve", "size", "metric", "ratio", "ratio_low", "ratio_high", "threshold"),
    *("verdict", "runs", "baseline_runs"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    lines: tuple[Line, ...]
    #: what only the baseline has: `4 GPUs, mode=ddp`
    missing: tuple[str, ...]
    notes: tuple[str, ...]


#: Curve and size.
_Key = tuple[str, int]
_Runs = dict[_Key, list[records.Measurement]]


def compare(
    measurements: Sequence[records.Measurement],
    baseline: Sequence[records.Measurement],
    thresholds: Mapping[str, float] | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    unit: str = "gpus",
) -> Comparison:
    """Compare runs with the runs of a baseline that have the same size and attributes.

    Confidence intervals are joint ones (Bonferroni). Attributes that differ only between the two
    sides, such as the commit, are what is compared; they become notes, as other code does.
    """
    thresholds = thresholds or {}
    new, old, sentences = _sides(measurements, baseline)
    sentences += notes.differences_of_code([*baseline, *measurements])
    values = {
        (key, name): (_values(new[key], METRICS[name]), _values(old[key], METRICS[name]))
        for key in new
        if key in old
        for name in dict.fromkeys((*metrics, *thresholds))
    }
    values = {key: both for key, both in values.items() if all(both)}
    confidence = 1.0 - (1.0 - regression.CONFIDENCE) / max(1, len(values))
    lines = [
        _line(key, name, both, thresholds.get(name, METRICS[name].threshold), confidence)
        for (key, name), both in values.items()
    ]
    missing = tuple(_key_text(key, unit) for key in old if key not in new)
    sentences += [
        f"not compared, because the baseline has no such runs: {_key_text(key, unit)}"
        for key in new
        if key not in old
    ]
    sentences += [f"not compared, because there are no such runs now: {text}" for text in missing]
    for prefix, side in (("", new), ("baseline: ", old)):
        for runs in side.values():
            sentences += [f"{prefix}{note}" for note in notes.outlier_notes(runs, unit)]
    few = sorted({line.size for line in lines if line.ratio_low is None})
    if few:
        sentences.append(f"too few runs for a confidence interval: {display.sizes(few, unit)}")
    if len(values) > 1:
        sentences.append(f"95 % confidence intervals, joint for all {len(values)} comparisons")
    return Comparison(lines=tuple(lines), missing=missing, notes=tuple(sentences))


def _sides(
    measurements: Sequence[records.Measurement], baseline: Sequence[records.Measurement]
) -> tuple[_Runs, _Runs, list[str]]:
    """Return the runs of both sides by curve and size, and how the sides differ."""
    attributes, _ = curves.with_batch([*measurements, *baseline], None)
    new, old = attributes[: len(measurements)], attributes[len(measurements) :]
    keys, sentences = [], []
    for name in sorted({name for own in attributes for name in own} - curves.FREE):
        # A run that does not state an attribute matches any value of it.
        after, before = ({own[name] for own in side if own.get(name)} for side in (new, old))
        if len(after) > 1 or len(before) > 1:
            keys.append(name)
        elif after != before:
            was, is_now = (next(iter(values), "not stated") for values in (before, after))
            sentences.append(f"{name} was {was} and is {is_now}")

    def groups(runs: Sequence[records.Measurement], stated: Sequence[Mapping[str, str]]) -> _Runs:
        by_key: _Runs = collections.defaultdict(list)
        for run, own in zip(runs, stated, strict=True):
            curve = display.attributes({name: own.get(name, "") for name in keys})
            by_key[curve, run.size].append(run)
        return dict(sorted(by_key.items()))

    return groups(measurements, new), groups(baseline, old), sentences


def _values(runs: Sequence[records.Measurement], metric: Metric) -> list[float]:
    values = [metric.value(run) for run in runs]
    return [value for value in values if value is not None and value > 0.0]


def _line(
    key: _Key,
    name: str,
    values: tuple[list[float], list[float]],
    threshold: float,
    confidence: float,
) -> Line:
    metric = METRICS[name]
    compared = regression.compare(
        *values,
        threshold=threshold,
        higher_is_better=metric.higher_is_better,
        confidence=confidence,
    )
    interval = ""
    if compared.low is not None and compared.high is not None:
        interval = f"{_change(compared.low)} to {_change(compared.high)}".replace(" % to", " to")
    worse, better = metric.words
    verdicts = {"slower": worse, "faster": better}
    return Line(
        curve=key[0],
        size=key[1],
        metric=name,
        change=_change(compared.ratio),
        interval=interval,
        verdict=verdicts.get(compared.result, compared.result),
        runs=compared.runs,
        baseline_runs=compared.baseline_runs,
        ratio=compared.ratio,
        ratio_low=compared.low,
        ratio_high=compared.high,
        threshold=threshold,
        is_worse=compared.result == "slower",
    )


def _change(ratio: float) -> str:
    return f"{100.0 * (ratio - 1.0):+.1f} %"


def _key_text(key: _Key, unit: str) -> str:
    return ", ".join(filter(None, (display.size(key[1], unit), key[0])))


def worse(comparison: Comparison, unit: str) -> list[str]:
    """Return a clause for each line that is worse than the baseline."""
    return [
        f"{line.metric} of {_key_text((line.curve, line.size), unit)} is {line.change} "
        f"({line.interval})"
        for line in comparison.lines
        if line.is_worse
    ]


def rows(comparison: Comparison) -> list[dict[str, object]]:
    return [dataclasses.asdict(line) for line in comparison.lines]
