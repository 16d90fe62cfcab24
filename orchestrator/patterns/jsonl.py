"""Parses the lines of metrics.jsonl."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from typing import Any

from orchestrator import jobs
from orchestrator.patterns import numbers

SOURCE = "jsonl"

#: Seconds since 1970 of the year 2200. Larger numbers are milliseconds or garbage.
_LAST_SECOND = 7_258_118_400


def parse_jsonl(text: str, *, path: str = "", line: int | None = None) -> list[jobs.Metric]:
    """Return the metric of a line such as {"name": "loss", "value": 0.5}; [] for other lines.

    Keys: name, value (null: not a finite number), unit, step, epoch, rank, world_size, time
    (ISO 8601 with zone, or seconds since 1970), attempt.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(record, dict):
        return []
    name, value, unit = record.get("name"), _value(record), record.get("unit")
    # A lone surrogate, which JSON may contain, is not printable and cannot be stored.
    if not isinstance(unit, str) or not unit.isprintable():
        unit = ""
    if not isinstance(name, str) or not numbers.METRIC_NAME.fullmatch(name) or value is None:
        return []
    return [
        jobs.Metric(
            name=name,
            value=value,
            unit=unit[: numbers.UNIT_CHARACTERS],
            step=_count(record, "step"),
            epoch=_count(record, "epoch"),
            rank=_count(record, "rank"),
            world_size=_count(record, "world_size"),
            time=_time(record.get("time")),
            attempt=_count(record, "attempt", below=2**31) or 0,
            source=SOURCE,
            path=path,
            line=line,
        )
    ]


def _value(record: Mapping[str, Any]) -> float | None:
    value = record.get("value", False)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else math.nan


def _count(record: Mapping[str, Any], key: str, *, below: int = 2**63) -> int | None:
    value = record.get(key)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below
    return value if is_count else None


def _time(value: object) -> datetime.datetime | None:
    """Return the time in UTC; None if its zone is unknown."""
    try:
        if isinstance(value, str):
            time = datetime.datetime.fromisoformat(value)
            return None if time.tzinfo is None else time.astimezone(datetime.UTC)
        if isinstance(value, int | float) and 0 < value < _LAST_SECOND:
            return datetime.datetime.fromtimestamp(value, datetime.UTC)
    except (ValueError, OverflowError):
        pass
    return None
