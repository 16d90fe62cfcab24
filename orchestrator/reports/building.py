"""Build a report from measurements: curves with their rows and fits."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence

from orchestrator import scaling
from orchestrator.reports import curves, display, notes, records

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
    return records.Curve(
        name=display.attributes(group.attributes),
        attributes=group.attributes,
        study=study,
        rows=tuple(
            records.Row(
                point=point,
                unit=unit,
                measurements=tuple(run for run in runs if run.size == point.size),
                left_out=tuple(
                    runs[index] for index in study.left_out if runs[index].size == point.size
                ),
                shared=all(id(run) in shared for run in runs if run.size == point.size),
                samples_per_epoch=samples_per_epoch,
            )
            for point in study.points
        ),
    )
