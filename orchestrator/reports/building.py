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
    run_ids = [set(map(id, runs)) for _, runs in grouping.groups]
    shared = set.intersection(*run_ids) if len(run_ids) > 1 else set()
    groups = sorted(
        grouping.groups,
        key=lambda group: (min(run.size for run in group[1]), display.attributes(group[0])),
    )
    names = [display.attributes(attributes) for attributes, _ in groups]
    if any(len(name) > _NAME_CHARACTERS for name in names):
        names = [*string.ascii_uppercase, *(f"C{number}" for number in range(26, len(names)))]
    built = []
    for name, (attributes, runs) in zip(names, groups, strict=False):
        study = scaling.study(runs, display.plural(unit))
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
        curve = records.Curve(
            name=name, attributes=attributes, unit=unit, study=study, rows=tuple(rows)
        )
        built.append(curve)
    return records.Report(
        title=title,
        unit=unit,
        curves=tuple(built),
        common=grouping.common,
        warnings=(
            *left_out,
            *notes.differences_of_code(measurements),
            *notes.warnings(grouping, built, unit),
        ),
        notes=tuple(notes.notes(measurements, built, unit, grouping.scaling, samples_per_epoch)),
    )
