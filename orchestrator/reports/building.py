"""Measurements -> a report: curves with their tables and fits, and what spoils them."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Callable, Sequence

from orchestrator import scaling
from orchestrator.reports import curves, display, notes, records
from orchestrator.scaling import quantiles

_HOUR_SECONDS = 3600.0
#: Names of curves that are longer make tables that no terminal holds.
_NAME_CHARACTERS = 24


def build_report(
    title: str,
    measurements: Sequence[records.Measurement],
    *,
    unit: str = "gpus",
    scaling_kind: str | None = None,
    samples_per_epoch: int | None = None,
    apart: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> records.Report:
    """Return the report of a study; ValueError for no measurements or one that is none.

    `samples_per_epoch` gives the epoch's time where it was not measured. `apart`: attributes that
    make curves although they change no speed. `left_out`: sentences about what is missing.
    """
    grouping = curves.group(measurements, scaling=scaling_kind, apart=apart)
    shared = _in_all(grouping.groups)
    made = [_curve(group, shared, unit, samples_per_epoch) for group in grouping.groups]
    made.sort(key=lambda curve: (curve.rows[0].point.gpus, curve.name))
    found = _named(made)
    return records.Report(
        title=title,
        unit=unit,
        curves=found,
        common=grouping.common,
        warnings=(*left_out, *notes.warnings(grouping, found, unit)),
        notes=tuple(notes.notes(measurements, found, unit, grouping.scaling, samples_per_epoch)),
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
        display.plural(unit),
    )
    rows = []
    for point in study.points:
        these = tuple(one for one in group.measurements if one.size == point.gpus)
        is_shared = all(id(one) in shared for one in these)
        far = tuple(
            group.measurements[place]
            for place in study.left_out
            if group.measurements[place].size == point.gpus
        )
        rows.append(_row(point, these, far, is_shared, unit, samples_per_epoch))
    return records.Curve(
        name=display.attributes(group.attributes),
        attributes=group.attributes,
        study=study,
        rows=tuple(rows),
    )


def _row(
    point: scaling.Point,
    these: tuple[records.Measurement, ...],
    left_out: tuple[records.Measurement, ...],
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
    charged = float(point.gpus)
    if unit == "gpus":
        charged = quantiles.median([one.gpus_allocated or one.size for one in these])
    hours = None
    if epoch_seconds is not None and unit == "gpus":
        hours = charged * epoch_seconds / _HOUR_SECONDS
    ranks = max((len(one.memory_bytes) for one in these), default=0)
    parts = dict.fromkeys(part for one in these for part in one.step_seconds)
    return records.Row(
        point=point,
        measurements=these,
        left_out=left_out,
        shared=shared,
        nodes=tuple(sorted({one.nodes for one in these if one.nodes is not None})),
        charged=charged,
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
