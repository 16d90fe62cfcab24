"""Values as a tracker takes them: rows of W&B, and the columns of a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orchestrator.trackers.series import Axis, Series


def rows(series: Iterable[tuple[Series, int]]) -> list[dict[str, Any]]:
    """Return rows of values with the same position, of each series from an index on.

    The axis is one of the values: W&B numbers the rows itself, and its numbers must not decrease.
    """
    found: dict[tuple[Axis, int, int], dict[str, Any]] = {}
    for each, first in series:
        repeats: dict[int, int] = {}
        for index in range(first, len(each.steps)):
            step = each.steps[index]
            repeat = repeats[step] = repeats.get(step, -1) + 1
            row = found.setdefault((each.axis, repeat, step), {"_timestamp": each.times[index]})
            if each.axis != "count":
                row[each.axis] = step
            row[each.name] = each.values[index]
    return [row for _, row in sorted(found.items(), key=lambda item: item[0])]


def columns(series: Iterable[Series]) -> dict[str, list[list[Any]]]:
    """Return steps, times and values by name."""
    return {each.name: [list(each.steps), list(each.times), list(each.values)] for each in series}
