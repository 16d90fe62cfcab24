"""What a reader has to know of a report: sentences about its curves and its numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from orchestrator.reports import curves, display, records
from orchestrator.scaling import quantiles

#: A repeat so far from the others of its size is named: noise of 1 to 3 % is usual.
_OUTLIER_SHARE = 0.05
#: ... and so many times the median distance, of which 1.48 make a standard deviation.
_OUTLIER_DISTANCES = 5.0


def warnings(
    grouping: curves.Grouping, found: Sequence[records.Curve], unit: str
) -> tuple[str, ...]:
    """Return what a reader has to know before believing the numbers."""
    return (
        *_told_differences(grouping, unit),
        *_told_across(found, unit),
        *_told_of_curves(found),
        *_told_layouts(found, unit),
        *_told_allocated(found, unit),
        *_told_outliers(found, unit),
        *_told_unstated(grouping, unit),
        *_told_mixed(grouping),
    )


def _told_differences(grouping: curves.Grouping, unit: str) -> list[str]:
    told = []
    for name, values in grouping.differences.items():
        each = [f"{value} at {display.sizes(sizes, unit)}" for value, sizes in values.items()]
        told.append(f"{name} differs, so these are not one curve: {'; '.join(each)}")
    return told


def _told_across(found: Sequence[records.Curve], unit: str) -> list[str]:
    """Tell of speedups that one might read across curves, and of why they are none."""
    least = found[0].rows[0].point.gpus
    told = []
    for curve in found:
        point = curve.rows[0].point
        for base in found:
            smallest = base.rows[0].point
            if point.gpus == least or smallest.gpus != least:
                continue
            ratio = point.throughput.value / smallest.throughput.value
            efficiency = ratio * least / point.gpus
            each = [
                f"{name} ({mine or 'not stated'}, not {base.attributes[name] or 'stated'})"
                for name, mine in curve.attributes.items()
                if mine != base.attributes[name]
            ]
            told.append(
                f"{display.size(point.gpus, unit)} of {curve.name} are {ratio:.2f} times as fast "
                f"as {display.size(least, unit)} of {base.name}, an efficiency of "
                f"{display.share(efficiency)}: that is no speedup, for they differ in more than "
                f"their size: {', '.join(each)}"
            )
    return told


def _told_of_curves(found: Sequence[records.Curve]) -> list[str]:
    several = len(found) > 1
    told: dict[str, list[str]] = {}
    for curve in found:
        for warning in curve.study.warnings:
            told.setdefault(warning, []).append(curve.name)
    return [
        f"{' and '.join(labels)}: {warning}" if several and len(labels) < len(found) else warning
        for warning, labels in told.items()
    ]


def _told_layouts(found: Sequence[records.Curve], unit: str) -> list[str]:
    told: dict[str, None] = {}
    for curve in found:
        for row in curve.rows:
            if unit != "nodes" and len(row.nodes) > 1:
                nodes = " and on ".join(display.size(count, "nodes") for count in row.nodes)
                told[
                    f"{display.size(row.point.gpus, unit)} were on {nodes}: one point all the same"
                ] = None
    return [*told]


def _told_allocated(found: Sequence[records.Curve], unit: str) -> list[str]:
    sizes = {
        row.point.gpus: round(row.charged)
        for curve in found
        for row in curve.rows
        if row.charged > row.point.gpus
    }
    if not sizes:
        return []
    each = ", ".join(f"{size} of {charged}" for size, charged in sorted(sizes.items()))
    return [
        f"of the {display.plural(unit)} allocated not all were used: {each}; speedup and "
        "efficiency are by those used, GPU-hours by those allocated"
    ]


def _told_outliers(found: Sequence[records.Curve], unit: str) -> list[str]:
    told: dict[str, None] = {}
    for curve in found:
        for row in curve.rows:
            told |= dict.fromkeys(told_outliers(row.measurements, unit, row.left_out))
    return [*told]


def told_outliers(
    these: Sequence[records.Measurement],
    unit: str,
    left_out: Sequence[records.Measurement] = (),
) -> list[str]:
    """Return a sentence for each repeat that is far from the others of its size."""
    told = []
    gone = set(map(id, left_out))
    for one, ratio in outliers(these, gone):
        where = f" on {one.node_list}" if one.node_list else ""
        way = "slower" if ratio < 1.0 else "faster"
        gone_words = "left out; " if id(one) in gone else ""
        told.append(
            f"{one.name}{where} is {display.share(abs(ratio - 1.0))} {way} than the middle of its "
            f"{display.size(one.size, unit)}: {gone_words}look at its node"
        )
    return told


def outliers(
    these: Sequence[records.Measurement], known: Collection[int] = ()
) -> list[tuple[records.Measurement, float]]:
    """Return repeats that are far from the others, each with its share of their median.

    `known`: identities of those that are anyway.
    """
    if len(these) < 3:
        return []
    middle = quantiles.median([one.throughput for one in these])
    logs = [abs(math.log(one.throughput / middle)) for one in these]
    usual = 1.4826 * quantiles.median(logs)
    least = max(_OUTLIER_DISTANCES * usual, _OUTLIER_SHARE)
    return [
        (one, one.throughput / middle)
        for one, distance in zip(these, logs, strict=True)
        if distance > least or id(one) in known
    ]


def _told_unstated(grouping: curves.Grouping, unit: str) -> list[str]:
    return [
        f"{name} is not known of {display.sizes(sizes, unit)}: taken as the same as the others'"
        for name, sizes in grouping.unstated.items()
    ]


def _told_mixed(grouping: curves.Grouping) -> list[str]:
    return [
        f"{name} differs ({', '.join(values)}) and makes no curve, for it changes no speed; "
        "accuracy and total time are of all of them"
        for name, values in grouping.mixed.items()
        if name != "seed"
    ]


def notes(
    measurements: Sequence[records.Measurement],
    found: Sequence[records.Curve],
    unit: str,
    kind: str | None,
    samples_per_epoch: int | None,
) -> Iterable[str]:
    """Yield how the numbers came to be."""
    rows = {tuple(map(id, row.measurements)): row for curve in found for row in curve.rows}
    windows = sum(len(one.windows) for one in measurements)
    yield (
        f"{_many(len(measurements), 'run')}, {_many(len(rows), 'point')} of "
        f"{_counted(len(key) for key in rows)} each, {_many(windows, 'window')}; intervals hold "
        "the truth in 95 of 100 studies"
    )
    for curve in found:
        point = curve.rows[0].point
        whose = f" of {curve.name}" if len(found) > 1 else ""
        yield (
            f"speedup{whose} is against {display.size(point.gpus, unit)}, "
            f"{display.number(point.throughput.value)} samples a second"
        )
    if kind is not None:
        held = "global batch" if kind == "strong" else "batch of each device"
        yield f"{kind} scaling: the {held} is the same at all sizes"
    warm_up = dict.fromkeys(one.warm_up or "not known" for one in measurements)
    yield f"left out as warm-up: {'; '.join(warm_up)}"
    measured = sum(one.source == "jsonl" for one in measurements)
    parsed: dict[str, int] = {}
    for one in measurements:
        if one.source != "jsonl":
            parsed[one.source] = parsed.get(one.source, 0) + 1
    if measured:
        yield f"throughput measured in the trainer (metrics.jsonl): {_many(measured, 'run')}"
    for source, runs in parsed.items():
        how = "as given in the file" if source == "file" else f"parsed from the log ({source})"
        yield f"throughput {how}, not measured: {_many(runs, 'run')}"
    if samples_per_epoch is not None and any(one.epoch_seconds is None for one in measurements):
        yield f"time of an epoch worked out: {samples_per_epoch} samples by the throughput"


def _counted(counts: Iterable[int]) -> str:
    found = sorted(set(counts))
    if len(found) == 1:
        return _many(found[0], "repeat")
    return f"{found[0]} to {found[-1]} repeats"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
