"""Parses the lines of metrics.jsonl."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

from orchestrator import jobs
from orchestrator.patterns import numbers

SOURCE = "jsonl"


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
    name, value, unit = record.get("name"), _value(record.get("value", "")), record.get("unit")
    if not isinstance(name, str) or not numbers.METRIC_NAME.fullmatch(name) or value is None:
        return []
    # A lone surrogate, which JSON may contain, is not printable and cannot be stored.
    if not isinstance(unit, str) or not unit.isprintable():
        unit = ""
    counts = {key: _count(record.get(key)) for key in ("step", "epoch", "rank", "world_size")}
    return [
        jobs.Metric(
            name=name,
            value=value,
            unit=unit[: numbers.UNIT_CHARACTERS],
            time=_time(record.get("time")),
            attempt=_count(record.get("attempt"), below=2**31) or 0,
            source=SOURCE,
            path=path,
            line=line,
            **counts,
        )
    ]


def _value(value: Any) -> float | None:
    if value is None:
        return math.nan
    if type(value) not in (int, float):
        return None
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return None


def _count(value: Any, *, below: int = 2**63) -> int | None:
    return value if type(value) is int and 0 <= value < below else None


def _time(value: Any) -> datetime.datetime | None:
    """Return the time in UTC; None if its zone is unknown."""
    if type(value) in (int, float):
        return numbers.time(value)
    try:
        time = datetime.datetime.fromisoformat(value)
        return None if time.tzinfo is None else time.astimezone(datetime.UTC)
    except (TypeError, ValueError, OverflowError):
        return None
