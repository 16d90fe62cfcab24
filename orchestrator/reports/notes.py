"""Sentences below a report: what may mislead, and how the numbers were obtained."""

from __future__ import annotations

import collections
import math
import statistics
from collections.abc import Collection, Iterator, Sequence

from orchestrator import reproduction, scaling
from orchestrator.reports import curves, display, records
from orchestrator.text.nouns import count

#: A repeat that is named differs from the median of its size by more than this share. Noise of 1 to
#: 3 % is usual.
_OUTLIER_SHARE = 0.05
#: It also differs by more than this many standard deviations of its own size. Only the outliers of
#: scaling.study, which knows the deviation of all sizes, are left out.
_OUTLIER_DEVIATIONS = 5.0
_SOURCES = {
    "jsonl": "measured in the trainer (metrics.jsonl)",
    "file": "as given in the file, not measured",
}


def warnings(grouping: curves.Grouping, built: Sequence[records.Curve], unit: str) -> Iterator[str]:
    """Yield what a reader must know before using the numbers."""
    rows = [row for curve in built for row in curve.rows]
    for name, values in grouping.differences.items():
        sizes = "; ".join(f"{v} at {display.sizes(at, unit)}" for v, at in values.items())
        yield f"{name} differs, so there are several curves: {sizes}"
    yield from _no_speedups(built, unit)
    by_text = collections.defaultdict(list)
    for curve in built:
        for warning in curve.study.warnings:
            by_text[warning].append(curve.name)
    for warning, names in by_text.items():
        yield warning if len(names) == len(built) else f"{' and '.join(names)}: {warning}"
    if unit != "nodes":
        yield from dict.fromkeys(
            f"runs with {display.size(row.point.size, unit)} used "
            f"{' and '.join(display.size(nodes, 'nodes') for nodes in row.nodes)}; they are "
            "combined into one point"
            for row in rows
            if len(row.nodes) > 1
        )
    partial = {row.point.size: row.charged for row in rows if row.charged > row.point.size}
    if partial:
        each = ", ".join(f"{size} of {charged:.0f}" for size, charged in sorted(partial.items()))
        yield (
            f"not all allocated {display.plural(unit)} were used: {each}; speedup and efficiency "
            "count those used, GPU-hours those allocated"
        )
    yield from dict.fromkeys(
        sentence for row in rows for sentence in outlier_notes(row.measurements, unit, row.left_out)
    )
    for name, lacking in grouping.unstated.items():
        yield (
            f"{name} is unknown for {display.sizes(lacking, unit)}: assumed to be the same as in "
            "the other runs"
        )
    for name, several in grouping.mixed.items():
        if name != "seed":
            yield (
                f"{name} differs ({', '.join(several)}) but makes no separate curves, because it "
                "does not change the speed; accuracy and total time combine all values"
            )


def _no_speedups(built: Sequence[records.Curve], unit: str) -> Iterator[str]:
    """Yield ratios between curves that could be mistaken for speedups."""
    least = built[0].rows[0].point.size
    bases = [curve for curve in built if curve.rows[0].point.size == least]
    for curve in built[len(bases) :]:
        point = curve.rows[0].point
        for base in bases:
            ratio = point.throughput.value / base.rows[0].point.throughput.value
            differences = ", ".join(
                f"{name} ({value or 'not stated'}, not {base.attributes[name] or 'stated'})"
                for name, value in curve.attributes.items()
                if value != base.attributes[name]
            )
            yield (
                f"{display.size(point.size, unit)} of {curve.name} have {ratio:.2f} times the "
                f"throughput of {display.size(least, unit)} of {base.name} (efficiency "
                f"{display.share(ratio * least / point.size)}). This is not a speedup, because "
                f"more than the size differs: {differences}"
            )


def differences_of_code(runs: Sequence[records.Measurement]) -> list[str]:
    """Return a sentence each if runs differ in their code or their environment."""
    return reproduction.notes(
        [
            reproduction.Identity(job=run.job, code=run.code, environment=run.environment)
            for run in runs
        ]
    )


def outlier_notes(
    runs: Sequence[records.Measurement],
    unit: str,
    left_out: Collection[records.Measurement] = (),
) -> list[str]:
    """Return a sentence for each repeat that is far from the others of its size, or left out."""
    if len(runs) < 3:
        return []
    median = statistics.median(run.throughput for run in runs)
    distances = [abs(math.log(run.throughput / median)) for run in runs]
    usual = scaling.NORMAL_MAD * statistics.median(distances)
    limit = max(_OUTLIER_DEVIATIONS * usual, _OUTLIER_SHARE)
    known = set(map(id, left_out))
    sentences = []
    for run, distance in zip(runs, distances, strict=True):
        if distance > limit or id(run) in known:
            ratio = run.throughput / median
            where = f" on {run.node_list}" if run.node_list else ""
            direction = "slower" if ratio < 1.0 else "faster"
            suffix = " (left out)" if id(run) in known else ""
            sentences.append(
                f"{run.name}{where} is {display.share(abs(ratio - 1.0))} {direction} than the "
                f"median of {display.size(run.size, unit)}{suffix}: check its node"
            )
    return sentences


def notes(
    measurements: Sequence[records.Measurement],
    built: Sequence[records.Curve],
    unit: str,
    kind: str | None,
    samples_per_epoch: int | None,
) -> Iterator[str]:
    """Yield how the numbers were obtained."""
    repeats = {tuple(map(id, row.measurements)) for curve in built for row in curve.rows}
    counts = sorted({len(runs) for runs in repeats})
    each = count(counts[-1], "repeat")
    if len(counts) > 1:
        each = f"{counts[0]} to {each}"
    windows = sum(len(run.windows) for run in measurements)
    yield (
        f"{count(len(measurements), 'run')}, {count(len(repeats), 'point')} of "
        f"{each} each, {count(windows, 'window')}; 95 % confidence intervals"
    )
    for curve in built:
        point = curve.rows[0].point
        name = f" of {curve.name}" if len(built) > 1 else ""
        yield (
            f"speedup{name} is relative to {display.size(point.size, unit)}, "
            f"{display.number(point.throughput.value)} samples/s"
        )
    if kind is not None:
        batch = "global batch" if kind == "strong" else "batch of each device"
        yield f"{kind} scaling: the {batch} is the same at all sizes"
    warm_ups = dict.fromkeys(run.warm_up or "unknown" for run in measurements)
    yield f"left out as warm-up: {'; '.join(warm_ups)}"
    sources = collections.Counter(run.source for run in measurements)
    for source, runs in sorted(sources.items(), key=lambda item: item[0] != "jsonl"):
        how = _SOURCES.get(source, f"parsed from the log ({source}), not measured")
        yield f"throughput {how}: {count(runs, 'run')}"
    if samples_per_epoch is not None and any(run.epoch_seconds is None for run in measurements):
        yield f"time per epoch computed: {samples_per_epoch} samples divided by the throughput"
