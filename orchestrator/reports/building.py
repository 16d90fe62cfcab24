"""Measurements -> a report: curves with their tables and fits, and what spoils them."""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Callable, Iterable, Sequence

from orchestrator import quantiles, scaling
from orchestrator.reports import curves, records, words

_HOUR_SECONDS = 3600.0
#: Names of curves that are longer make tables that no terminal holds.
_NAME_CHARACTERS = 24
#: A repeat so far from the others of its size is named: noise of 1 to 3 % is usual.
_OUTLIER_SHARE = 0.05
#: ... and so many times the median distance, of which 1.48 make a standard deviation.
_OUTLIER_DISTANCES = 5.0


def report(
    title: str,
    measurements: Sequence[records.Measurement],
    *,
    unit: str = "gpus",
    scaling_kind: str | None = None,
    samples_per_epoch: int | None = None,
    left_out: Sequence[str] = (),
) -> records.Report:
    """Return the report of a study; ValueError for no measurements or one that is none.

    `samples_per_epoch` gives the epoch's time where it was not measured. `left_out`: sentences
    about what is missing.
    """
    grouping = curves.group(measurements, scaling=scaling_kind)
    shared = _in_all(grouping.groups)
    made = [_curve(group, shared, unit, samples_per_epoch) for group in grouping.groups]
    made.sort(key=lambda curve: (curve.rows[0].point.gpus, curve.name))
    found = _named(made)
    return records.Report(
        title=title,
        unit=unit,
        curves=found,
        common=grouping.common,
        warnings=(
            *left_out,
            *_told_differences(grouping, unit),
            *_told_across(found, unit),
            *_told_of_curves(found),
            *_told_layouts(found, unit),
            *_told_outliers(found, unit),
            *_told_unstated(grouping, unit),
        ),
        notes=tuple(_notes(measurements, found, unit, grouping.scaling, samples_per_epoch)),
    )


def _named(made: Sequence[records.Curve]) -> tuple[records.Curve, ...]:
    """Return the curves with letters for names where their own are too long for a table."""
    if all(len(curve.name) <= _NAME_CHARACTERS for curve in made):
        return tuple(made)
    letters = string.ascii_uppercase
    return tuple(
        dataclasses.replace(curve, name=letters[place] if place < len(letters) else f"C{place}")
        for place, curve in enumerate(made)
    )


def _in_all(groups: Sequence[curves.Group]) -> set[int]:
    """Return which measurements (by identity) belong to every one of several curves."""
    if len(groups) < 2:
        return set()
    each = [{id(one) for one in group.measurements} for group in groups]
    return set.intersection(*each)


def _curve(
    group: curves.Group, shared: set[int], unit: str, samples_per_epoch: int | None
) -> records.Curve:
    study = scaling.study(
        [
            scaling.Run(gpus=one.size, throughput=one.throughput, windows=one.windows)
            for one in group.measurements
        ],
        words.plural(unit),
    )
    rows = []
    for point in study.points:
        these = tuple(one for one in group.measurements if one.size == point.gpus)
        is_shared = all(id(one) in shared for one in these)
        rows.append(_row(point, these, is_shared, unit, samples_per_epoch))
    return records.Curve(
        name=words.attributes(group.attributes),
        attributes=group.attributes,
        study=study,
        rows=tuple(rows),
    )


def _row(
    point: scaling.Point,
    these: tuple[records.Measurement, ...],
    shared: bool,
    unit: str,
    samples_per_epoch: int | None,
) -> records.Row:
    def middle(of: Callable[[records.Measurement], float | None]) -> float | None:
        known = [value for one in these if (value := of(one)) is not None]
        return quantiles.median(known) if known else None

    epoch_seconds = middle(lambda one: one.epoch_seconds)
    if epoch_seconds is None and samples_per_epoch is not None:
        epoch_seconds = samples_per_epoch / point.throughput.value
    hours = None
    if epoch_seconds is not None and unit == "gpus":
        hours = point.gpus * epoch_seconds / _HOUR_SECONDS
    ranks = max((len(one.memory_bytes) for one in these), default=0)
    parts = dict.fromkeys(part for one in these for part in one.step_seconds)
    return records.Row(
        point=point,
        measurements=these,
        shared=shared,
        nodes=tuple(sorted({one.nodes for one in these if one.nodes is not None})),
        epoch_seconds=epoch_seconds,
        gpu_hours_per_epoch=hours,
        total_seconds=middle(lambda one: one.total_seconds),
        data_wait_share=middle(lambda one: one.data_wait_share),
        # What a rank needs is the most that any repeat took.
        memory_bytes=tuple(
            max(one.memory_bytes[rank] for one in these if rank < len(one.memory_bytes))
            for rank in range(ranks)
        ),
        utilisation=middle(lambda one: one.utilisation),
        accuracy=middle(lambda one: one.accuracy),
        step_seconds={
            part: quantiles.median(
                [one.step_seconds[part] for one in these if part in one.step_seconds]
            )
            for part in parts
        },
        sources=tuple(dict.fromkeys(one.source for one in these)),
    )


def _told_differences(grouping: curves.Grouping, unit: str) -> list[str]:
    told = []
    for name, values in grouping.differences.items():
        each = [f"{value} at {words.sizes(sizes, unit)}" for value, sizes in values.items()]
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
                f"{words.size(point.gpus, unit)} of {curve.name} are {ratio:.2f} times as fast as "
                f"{words.size(least, unit)} of {base.name}, an efficiency of "
                f"{words.share(efficiency)}: that is no speedup, for they differ in more than "
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
                nodes = " and on ".join(words.size(count, "nodes") for count in row.nodes)
                told[
                    f"{words.size(row.point.gpus, unit)} were on {nodes}: one point all the same"
                ] = None
    return [*told]


def _told_outliers(found: Sequence[records.Curve], unit: str) -> list[str]:
    told: dict[str, None] = {}
    for curve in found:
        for row in curve.rows:
            told |= dict.fromkeys(told_outliers(row.measurements, unit))
    return [*told]


def told_outliers(these: Sequence[records.Measurement], unit: str) -> list[str]:
    """Return a sentence for each repeat that is far from the others of its size."""
    told = []
    for one, ratio in outliers(these):
        where = f" on {one.node_list}" if one.node_list else ""
        way = "slower" if ratio < 1.0 else "faster"
        told.append(
            f"{one.name}{where} is {words.share(abs(ratio - 1.0))} {way} than the middle of its "
            f"{words.size(one.size, unit)}: look at its node"
        )
    return told


def outliers(
    these: Sequence[records.Measurement],
) -> list[tuple[records.Measurement, float]]:
    """Return repeats that are far from the others, each with its share of their median."""
    if len(these) < 3:
        return []
    middle = quantiles.median([one.throughput for one in these])
    logs = [abs(math.log(one.throughput / middle)) for one in these]
    usual = 1.4826 * quantiles.median(logs)
    least = max(_OUTLIER_DISTANCES * usual, _OUTLIER_SHARE)
    return [
        (one, one.throughput / middle)
        for one, distance in zip(these, logs, strict=True)
        if distance > least
    ]


def _told_unstated(grouping: curves.Grouping, unit: str) -> list[str]:
    return [
        f"{name} is not known of {words.sizes(sizes, unit)}: taken as the same as the others'"
        for name, sizes in grouping.unstated.items()
    ]


def _notes(
    measurements: Sequence[records.Measurement],
    found: Sequence[records.Curve],
    unit: str,
    kind: str | None,
    samples_per_epoch: int | None,
) -> Iterable[str]:
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
            f"speedup{whose} is against {words.size(point.gpus, unit)}, "
            f"{words.number(point.throughput.value)} samples a second"
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
