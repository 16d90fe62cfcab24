"""Baselines: measurements saved under a name, to compare later ones with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator import errors, reports
from orchestrator.controller.session import contexts
from orchestrator.reports import comparison

_FIELDS = frozenset(field.name for field in dataclasses.fields(reports.Measurement))


def find(context: contexts.Context, name: str) -> reports.MeasurementSet:
    """Return the measurements of the newest baseline with this name; NotFoundError."""
    with context.store.reading() as work:
        text = work.baselines.measurements(name)
    if text is None:
        raise not_found(name)
    return from_json(text)


def compare(
    study: reports.MeasurementSet,
    baseline: reports.MeasurementSet,
    thresholds: Mapping[str, float] | None = None,
    metrics: Sequence[str] = (),
) -> comparison.Comparison:
    """Compare a study with a baseline. ConflictError if nothing can be compared."""
    if study.unit != baseline.unit:
        raise errors.ConflictError(
            f"the sizes cannot be compared: they are {study.unit} here and {baseline.unit} in the "
            "baseline"
        )
    compared = comparison.compare(
        study.measurements,
        baseline.measurements,
        thresholds,
        metrics or comparison.DEFAULT_METRICS,
        unit=study.unit,
    )
    if not compared.lines:
        reasons = ["no run can be compared with the baseline", *compared.notes]
        raise errors.ConflictError("\n".join(reasons))
    return compared


def not_found(name: str) -> errors.NotFoundError:
    return errors.NotFoundError(
        f"baseline {name!r} not found: `orchestrator baseline show` lists all baselines"
    )


def to_json(study: reports.MeasurementSet) -> str:
    measurements = [dataclasses.asdict(measurement) for measurement in study.measurements]
    return json.dumps({"unit": study.unit, "measurements": measurements}, ensure_ascii=False)


def from_json(text: str) -> reports.MeasurementSet:
    """Return stored measurements; fields of another version are left out."""
    stored = json.loads(text)
    return reports.MeasurementSet(
        unit=stored["unit"], measurements=tuple(map(_measurement, stored["measurements"]))
    )


def _measurement(stored: dict[str, Any]) -> reports.Measurement:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in stored.items()
        if name in _FIELDS
    }
    return reports.Measurement(**values)
