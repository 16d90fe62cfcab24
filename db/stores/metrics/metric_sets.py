"""Metric sets: what similar lines have in common, and which metrics a query selects. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator import metrics


class MetricSet(NamedTuple):
    """What similar lines have in common."""

    id: int
    job_row: int
    log_id: int | None
    attempt: int
    source: str
    rank: int | None
    world_size: int | None
    #: name and unit of each metric, in their places
    names: tuple[tuple[str, str], ...]


def selected(
    sets: Sequence[MetricSet], query: metrics.MetricQuery
) -> list[tuple[MetricSet, list[int]]]:
    """Return the sets that a query selects, each with the places of the metrics in it."""
    in_jsonl = {
        (metric_set.job_row, name, metric_set.attempt)
        for metric_set in sets
        if metric_set.source == "jsonl"
        for name, _ in metric_set.names
    }
    result = []
    for metric_set in sets:
        job_row, attempt, rank = metric_set.job_row, metric_set.attempt, metric_set.rank
        is_log = metric_set.source != "jsonl"
        if query.attempt not in (None, attempt) or query.rank not in (None, rank):
            continue
        if not (is_log if query.source == "log" else query.source in (None, metric_set.source)):
            continue
        places = [
            place
            for place, (name, _) in enumerate(metric_set.names)
            if not query.names or any(fnmatch.fnmatchcase(name, each) for each in query.names)
            if not (query.prefer_jsonl and is_log and (job_row, name, attempt) in in_jsonl)
        ]
        if places:
            result.append((metric_set, places))
    return result
