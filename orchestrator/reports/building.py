"""Build a report from measurements: curves with their rows and fits."""

from __future__ import annotations

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
    runs_of = [group.measurements for group in grouping.groups]
    shared = set.intersection(*(set(map(id, runs)) for runs in runs_of)) if runs_of[1:] else set()
    named = [(display.attributes(group.attributes), group) for group in grouping.groups]
    named.sort(key=lambda item: (min(run.size for run in item[1].measurements), item[0]))
    if any(len(name) > _NAME_CHARACTERS for name, _ in named):
        letters = [*string.ascii_uppercase, *(f"C{number}" for number in range(26, len(named)))]
        named = [(letter, group) for letter, (_, group) in zip(letters, named, strict=False)]
    built = [_curve(name, group, shared, unit, samples_per_epoch) for name, group in named]
    return records.Report(
        title=title,
        unit=unit,
        curves=tuple(built),
        common=grouping.common,
        warnings=(*left_out, *notes.warnings(grouping, built, unit)),
        notes=tuple(notes.notes(measurements, built, unit, grouping.scaling, samples_per_epoch)),
    )


def _curve(
    name: str, group: curves.Group, shared: set[int], unit: str, samples_per_epoch: int | None
) -> records.Curve:
    runs = group.measurements
    study = scaling.study(
        [scaling.Run(size=m.size, throughput=m.throughput, windows=m.windows) for m in runs],
        display.plural(unit),
    )
    outliers = [runs[index] for index in study.left_out]
    rows = []
    for point in study.points:
        repeats = tuple(run for run in runs if run.size == point.size)
        rows.append(
            records.Row(
                curve=name,
                point=point,
                unit=unit,
                measurements=repeats,
                left_out=tuple(run for run in outliers if run.size == point.size),
                shared=all(id(run) in shared for run in repeats),
                samples_per_epoch=samples_per_epoch,
            )
        )
    return records.Curve(
        name=name, attributes=group.attributes, unit=unit, study=study, rows=tuple(rows)
    )
