"""Build a report from measurements: curves with their rows and fits."""

from __future__ import annotations

import dataclasses
import statistics
import string
from collections.abc import Sequence

from orchestrator import scaling
from orchestrator.reports import curves, display, notes, records

_HOUR_SECONDS = 3600.0
#: Longer names of curves do not fit into a table.
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
    """Return the report of a study; ValueError without measurements.

    `samples_per_epoch` replaces times per epoch that were not measured. `apart`: attributes that
    make curves although they do not change the speed. `left_out`: further warnings.
    """
    grouping = curves.group(measurements, scaling=scaling_kind, apart=apart)
    shared: set[int] = set()
    if len(grouping.groups) > 1:
        shared = set.intersection(*({id(run) for run in g.measurements} for g in grouping.groups))
    built = [_curve(group, shared, unit, samples_per_epoch) for group in grouping.groups]
    built.sort(key=lambda curve: (curve.rows[0].point.size, curve.name))
    if any(len(curve.name) > _NAME_CHARACTERS for curve in built):
        letters = [*string.ascii_uppercase, *(f"C{n}" for n in range(26, len(built)))]
        built = [
            dataclasses.replace(curve, name=name)
            for curve, name in zip(built, letters, strict=False)
        ]
    return records.Report(
        title=title,
        unit=unit,
        curves=tuple(built),
        common=grouping.common,
        warnings=(*left_out, *notes.warnings(grouping, built, unit)),
        notes=tuple(notes.notes(measurements, built, unit, grouping.scaling, samples_per_epoch)),
    )


def _curve(
    group: curves.Group, shared: set[int], unit: str, samples_per_epoch: int | None
) -> records.Curve:
    runs = group.measurements
    study = scaling.study(
        [scaling.Run(size=m.size, throughput=m.throughput, windows=m.windows) for m in runs],
        display.plural(unit),
    )
    rows = []
    for point in study.points:
        repeats = tuple(run for run in runs if run.size == point.size)
        outliers = tuple(runs[index] for index in study.left_out if runs[index].size == point.size)
        is_shared = all(id(run) in shared for run in repeats)
        rows.append(_row(point, repeats, outliers, is_shared, unit, samples_per_epoch))
    return records.Curve(
        name=display.attributes(group.attributes),
        attributes=group.attributes,
        study=study,
        rows=tuple(rows),
    )


def _row(
    point: scaling.Point,
    runs: tuple[records.Measurement, ...],
    left_out: tuple[records.Measurement, ...],
    shared: bool,
    unit: str,
    samples_per_epoch: int | None,
) -> records.Row:
    def median(name: str) -> float | None:
        known = [value for run in runs if (value := getattr(run, name)) is not None]
        return statistics.median(known) if known else None

    epoch_seconds = median("epoch_seconds")
    if epoch_seconds is None and samples_per_epoch is not None:
        epoch_seconds = samples_per_epoch / point.throughput.value
    charged = float(point.size)
    hours = None
    if unit == "gpus":
        charged = statistics.median(run.gpus_allocated or run.size for run in runs)
        hours = None if epoch_seconds is None else charged * epoch_seconds / _HOUR_SECONDS
    ranks = max(len(run.memory_bytes) for run in runs)
    parts = dict.fromkeys(part for run in runs for part in run.step_seconds)
    return records.Row(
        point=point,
        measurements=runs,
        left_out=left_out,
        shared=shared,
        nodes=tuple(sorted({run.nodes for run in runs if run.nodes is not None})),
        charged=charged,
        epoch_seconds=epoch_seconds,
        gpu_hours_per_epoch=hours,
        total_seconds=median("total_seconds"),
        data_wait_share=median("data_wait_share"),
        # A rank needs as much as in the repeat that took most.
        memory_bytes=tuple(
            max(run.memory_bytes[rank] for run in runs if rank < len(run.memory_bytes))
            for rank in range(ranks)
        ),
        utilisation=median("utilisation"),
        accuracy=median("accuracy"),
        step_seconds={
            part: statistics.median(
                run.step_seconds[part] for run in runs if part in run.step_seconds
            )
            for part in parts
        },
        sources=tuple(dict.fromkeys(run.source for run in runs)),
    )
