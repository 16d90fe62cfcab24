"""Extracts metrics, context, phase and time from a line that matches a line kind."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from orchestrator.patterns import fields, metric_names, numbers, records
from orchestrator.text import expressions

#: Garbage logs contain any number of field names.
_CACHED_FIELDS = 4096
#: Seconds since 1970 of the year 2200.
_LAST_SECOND = 7_258_118_400


class _Target(NamedTuple):
    """What a regex group or a field sets."""

    #: "": the field is ignored
    name: str
    unit: str
    #: name and unit of each metric
    metrics: tuple[tuple[str, str], ...]
    #: nothing but metrics
    is_plain: bool


@dataclasses.dataclass(slots=True)
class LineValues:
    """What one line reports."""

    #: by name and unit; the first value counts
    metrics: dict[tuple[str, str], float]
    #: by the names of records.CONTEXT
    context: dict[str, int]
    phase: str = ""
    time: datetime.datetime | None = None

    def add(self, target: _Target, value: float | None, text: str) -> None:
        name = target.name
        if name == records.PHASE:
            self.phase = self.phase or text
        elif value is None:
            return
        elif name == records.TIME:
            seconds = value / 1000 if target.unit == "ms" else value
            if 0 < seconds < _LAST_SECOND:
                self.time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        else:
            if name in records.CONTEXT:
                count = numbers.whole(value)
                if count is not None:
                    self.context.setdefault(name, count)
            for metric in target.metrics:
                self.metrics.setdefault(metric, value)


class Extractor:
    """Extracts the values from lines of one kind."""

    def __init__(self, pattern: records.Pattern, kind: records.LineKind) -> None:
        self.pattern, self.kind = pattern, kind
        self._field_target = functools.lru_cache(_CACHED_FIELDS)(self._make_field_target)

    def extract(self, match: re.Match[str] | expressions.Match) -> LineValues | None:
        """Return the values of a line; None if its fields are malformed or metrics are missing."""
        kind, groups = self.kind, match.groupdict()
        line = LineValues(metrics={}, context={})
        for key in records.CONTEXT:
            if text := groups.get(key):
                count = numbers.integer(text)
                if count is not None and count >= 0:
                    line.context[key] = count
        line.phase = groups.get(records.PHASE) or ""
        for name, metric in kind.metrics.items():
            text = groups[name] or ""
            value = numbers.parse(text, kind.number_formats.get(name))
            if value is not None:
                unit = groups.get(name + records.UNIT_SUFFIX) or metric.unit
                line.add(_target(metric.name, unit), value, text)
        if kind.form is None:
            return line
        read = fields.read(kind, groups.get(records.FIELDS) or "")
        if read is None:
            return None
        for key, text, unit in fields.paired(read, kind.pair) if kind.pair else read:
            target = self._field_target(key, unit)
            if not target.is_plain:
                line.add(target, numbers.number(text), text)
            elif target.metrics and (value := numbers.number(text)) is not None:
                for metric_name in target.metrics:
                    line.metrics.setdefault(metric_name, value)
        reported = {name for name, _ in line.metrics}
        return line if all([reported.intersection(names) for names in kind.needs]) else None

    def slow_message(self, error: expressions.TooSlowError) -> str:
        return (
            f'pattern {self.pattern.name}, line "{self.kind.name}" ({self.pattern.origin}): its '
            f"regex took {error} and is not used for the rest of this read. Simplify it: fewer "
            "alternatives and repeats within repeats, no lookaround and no back-references"
        )

    def _make_field_target(self, key: str, unit: str) -> _Target:
        metric = self.kind.fields.get(key)
        if metric is None:
            name = metric_names.normalized(key)
            if name is None:
                name = metric_names.snake(key) if self.kind.others else ""
            metric = records.Value(name=name)
        return _target(metric.name, unit or metric.unit)


@functools.lru_cache(_CACHED_FIELDS)
def _target(name: str, unit: str) -> _Target:
    every = (name, "throughput") if name in metric_names.RATES else (name,)
    shown = unit[: numbers.UNIT_CHARACTERS]
    metrics = [(each, shown) for each in every if each and each not in records.NOT_METRICS]
    is_plain = name not in (*records.NOT_METRICS, *records.CONTEXT)
    return _Target(name, unit, tuple(metrics), is_plain)


def in_phase(metrics: Mapping[tuple[str, str], float], phase: str) -> dict[tuple[str, str], float]:
    """Rename the metrics of a validation line: loss becomes val_loss."""
    renamed: dict[tuple[str, str], float] = {}
    for (name, unit), value in metrics.items():
        new = metric_names.in_phase(name, phase)
        # A rate is also the throughput, but only of training.
        is_rate = name == "throughput" and any([(r, unit) in metrics for r in metric_names.RATES])
        if new == name or not is_rate:
            renamed.setdefault((new, unit), value)
    return renamed


def without_duplicates(
    metrics: Mapping[tuple[str, str], float], known: Collection[tuple[str, str]]
) -> Mapping[tuple[str, str], float]:
    """Return the first value of each metric that is not in `known`, a set of metric_key()."""
    if not known and len({name for name, _ in metrics}) == len(metrics):
        return metrics
    seen = set(known)
    kept = {}
    for metric, value in metrics.items():
        key = metric_key(*metric)
        if key not in seen:
            seen.add(key)
            kept[metric] = value
    return kept


def metric_key(name: str, unit: str) -> tuple[str, str]:
    """Return what identifies a metric in a line: images/s and TFLOP/s are both throughput."""
    return name, unit if name == "throughput" else ""
