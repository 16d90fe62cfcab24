"""Extracts metrics, context, phase and time from a line that matches a line kind."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from orchestrator.patterns import (
    aliases,
    fields,
    general,
    numbers,
    records,
    training_phases,
    vocabulary,
)
from orchestrator.text import expressions

#: Name and unit of each metric of a line.
Names: TypeAlias = tuple[tuple[str, str], ...]

#: Garbage logs contain any number of names.
_CACHED_NAMES = 4096


class _Target(NamedTuple):
    """What a regex group or a field sets."""

    #: one of records.CONTEXT, PHASE or TIME; "": nothing but metrics
    attribute: str
    unit: str
    metrics: Names


@dataclasses.dataclass(slots=True)
class LineValues:
    """What one line reports."""

    #: by name and unit; the first value counts
    metrics: dict[tuple[str, str], float]
    #: by the names of records.CONTEXT
    context: dict[str, int]
    phase: str = ""
    time: datetime.datetime | None = None
    #: of the table that the line begins; (): none
    columns: tuple[str, ...] = ()

    def add(self, target: _Target, text: str, value: float | None) -> None:
        if target.attribute == records.PHASE:
            self.phase = self.phase or text
        elif value is not None and target.attribute == records.TIME:
            seconds = value / 1000 if target.unit == "ms" else value
            self.time = numbers.time(seconds) or self.time
        elif value is not None:
            if target.attribute and (count := numbers.whole(value)) is not None:
                self.context.setdefault(target.attribute, count)
            for metric in target.metrics:
                self.metrics.setdefault(metric, value)


class Extractor:
    """Extracts the values from lines of one kind."""

    def __init__(self, pattern: records.Pattern, kind: records.LineKind) -> None:
        self.pattern, self.kind = pattern, kind
        self._field_target = functools.lru_cache(_CACHED_NAMES)(self._make_field_target)

    def extract(
        self, match: re.Match[str] | expressions.Match, columns: Sequence[str] = ()
    ) -> LineValues | None:
        """Return the values of a line; None if its fields are malformed or metrics are missing.

        Args:
            columns: of the table that the line may be a row of.
        """
        kind, groups = self.kind, match.groupdict()
        line = LineValues(metrics={}, context={})
        if kind.form == "general":
            reading = general.read(groups.get(records.FIELDS) or "", columns)
            if reading is None:
                return None
            line.columns = tuple(reading.columns)
            for each in reading.values:
                target = _target(each.meaning.name, each.unit)
                line.add(target, each.number, numbers.number(each.number))
            return line
        for key in records.CONTEXT:
            if (text := groups.get(key)) and (count := numbers.count(text)) is not None:
                line.context[key] = count
        line.phase = groups.get(records.PHASE) or ""
        for group, metric in kind.groups.items():
            text = groups[group] or ""
            unit = groups.get(group + records.UNIT_SUFFIX) or metric.unit
            value = numbers.parse(text, kind.number_formats.get(group))
            if value is not None:
                line.add(_target(metric.name, unit), text, value)
        if kind.form is None:
            return line
        parsed = fields.parse(kind, groups.get(records.FIELDS) or "")
        if parsed is None:
            return None
        for key, text, unit in parsed:
            line.add(self._field_target(key, unit), text, numbers.number(text))
        if not kind.needs:
            return line
        reported = {name for name, _ in line.metrics}
        return line if all([reported.intersection(names) for names in kind.needs]) else None

    def _make_field_target(self, key: str, unit: str) -> _Target:
        metric = self.kind.renamed.get(key)
        if metric is not None:
            return _target(metric.name, unit or metric.unit)
        name = aliases.normalized(key)
        if name is None and self.kind.others:
            name = vocabulary.snake(key)
        elif name is None:
            found = vocabulary.meaning(key)
            name = found.name if found is not None and found.kind not in ("time", "other") else ""
        return _target(name, unit)


@functools.lru_cache(_CACHED_NAMES)
def _target(name: str, unit: str) -> _Target:
    names = (name, "throughput") if name in aliases.RATES else (name,)
    shown = unit[: numbers.UNIT_CHARACTERS]
    metrics = [(each, shown) for each in names if each and each not in records.NOT_METRICS]
    is_attribute = name in (*records.NOT_METRICS, *records.CONTEXT)
    return _Target(name if is_attribute else "", unit, tuple(metrics))


def in_phase(metrics: Mapping[tuple[str, str], float], phase: str) -> dict[tuple[str, str], float]:
    """Rename the metrics of a validation line: loss becomes val_loss."""
    renamed: dict[tuple[str, str], float] = {}
    for (name, unit), value in metrics.items():
        new = training_phases.in_phase(name, phase)
        # A rate is also the throughput, but only of training.
        is_rate = name == "throughput" and any([(r, unit) in metrics for r in aliases.RATES])
        if new == name or not is_rate:
            renamed.setdefault((new, unit), value)
    return renamed


@functools.lru_cache(_CACHED_NAMES)
def new_names(names: Names, known: Names) -> tuple[Names, tuple[int, ...]]:
    """Return the first of each metric that is not in `known`, and their indexes in `names`.

    The result for equal names is the same object: the store recognizes it by identity.
    """
    keys = {_key(*name) for name in known}
    indexes = []
    for index, name in enumerate(names):
        if _key(*name) not in keys:
            keys.add(_key(*name))
            indexes.append(index)
    return tuple(names[index] for index in indexes), tuple(indexes)


def _key(name: str, unit: str) -> tuple[str, str]:
    """Return what identifies a metric in a line: images/s and TFLOP/s are both throughput."""
    return name, unit if name == "throughput" else ""
