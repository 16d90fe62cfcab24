"""Baselines: measurements saved under a name, with which later ones are compared."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from orchestrator import errors, reports
from orchestrator.controller.session import contexts


def find(context: contexts.Context, name: str) -> reports.MeasurementSet:
    """Return the measurements of the newest baseline with this name; NotFoundError."""
    with context.store.reading() as work:
        text = work.baselines.measurements(name)
    if text is None:
        raise unknown(name)
    return from_json(text)


def unknown(name: str) -> errors.NotFoundError:
    """Return the error for a name that no baseline has."""
    return errors.NotFoundError(
        f"no baseline {name!r} here; `orchestrator baseline show` lists what is known"
    )


def as_record(measurement: reports.Measurement) -> dict[str, Any]:
    """Return a measurement as JSON holds it."""
    return dataclasses.asdict(measurement)


def to_json(figures: reports.MeasurementSet) -> str:
    """Return measurements as the store holds them."""
    measurements = [as_record(measurement) for measurement in figures.measurements]
    return json.dumps({"unit": figures.unit, "measurements": measurements}, ensure_ascii=False)


def from_json(text: str) -> reports.MeasurementSet:
    """Return the measurements of a stored baseline."""
    stored = json.loads(text)
    return reports.MeasurementSet(
        unit=stored["unit"],
        measurements=tuple(_measurement(values) for values in stored["measurements"]),
    )


_FIELDS = frozenset(field.name for field in dataclasses.fields(reports.Measurement))


def _measurement(stored: dict[str, Any]) -> reports.Measurement:
    # Fields that another version stored and this one does not have are left out.
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in stored.items()
        if name in _FIELDS
    }
    return reports.Measurement(**values)
