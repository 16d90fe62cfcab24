"""Sums up GPU-hours, core-hours and node-hours of jobs by some keys."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from orchestrator.jobs import JobState

#: Keys to group by, besides `label:KEY`.
KEYS = ("job", "name", "sweep", "label", "month", "partition", "account", "cluster", "state")
#: Work with these ends has to be repeated. Requeued or preempted jobs continued.
WASTED = frozenset(
    {
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.OUT_OF_MEMORY,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
        JobState.LOST,
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a job."""

    #: of the job
    row: int
    #: values of the keys that are the same for all starts of the job
    words: Mapping[str, str]
    labels: tuple[str, ...]
    state: JobState
    started_at: datetime.datetime
    #: of a running job, now
    ended_at: datetime.datetime
    nodes: int | None
    gpus: int | None
    cpus: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """The usage of one group."""

    #: value of each key
    words: Mapping[str, str]
    jobs: int
    starts: int
    gpu_hours: float
    core_hours: float
    node_hours: float
    #: of the GPU-hours; without GPUs of the core-hours, else of the node-hours
    wasted_share: float | None
    #: starts whose number of GPUs or CPUs is unknown; they count as 0
    unknown_gpus: int
    unknown_cpus: int


@dataclasses.dataclass(frozen=True)
class _Part:
    """A start, or the part of it within one month."""

    start: Start
    hours: float

    def used(self, resource: Literal["gpus", "cpus", "nodes"]) -> float:
        return (getattr(self.start, resource) or 0) * self.hours


def grouped(
    starts: Iterable[Start],
    keys: Sequence[str],
    *,
    since: datetime.datetime | None = None,
    until: datetime.datetime | None = None,
    zone: datetime.tzinfo | None = None,
) -> list[Usage]:
    """Return the usage between `since` and `until`, grouped by keys.

    Months are in `zone`, by default the local one. By `label` a job counts for each of its labels.
    Months are in order, other groups by descending usage.
    """
    groups: dict[tuple[str, ...], list[_Part]] = {}
    for start in starts:
        begin = max(start.started_at, since) if since is not None else start.started_at
        end = min(start.ended_at, until) if until is not None else start.ended_at
        if end < begin or (end == begin and start.ended_at > start.started_at):
            continue
        spans = [*_months(begin, end, zone)] if "month" in keys else [("", begin, end)]
        for month, first, last in spans:
            part = _Part(start, (last - first).total_seconds() / 3600)
            for words in _words(start, keys, month):
                groups.setdefault(words, []).append(part)
    usages = [_usage(dict(zip(keys, words, strict=True)), of) for words, of in groups.items()]
    usages.sort(key=lambda u: (u.gpu_hours, u.core_hours, u.node_hours), reverse=True)
    return sorted(usages, key=lambda usage: usage.words.get("month", ""))


def _months(
    begin: datetime.datetime, end: datetime.datetime, zone: datetime.tzinfo | None
) -> Iterator[tuple[str, datetime.datetime, datetime.datetime]]:
    while True:
        local = begin.astimezone(zone)
        year, month = divmod(local.year * 12 + local.month, 12)
        # Without a zone the local UTC offset at that time is used.
        following = datetime.datetime(year, month + 1, 1, tzinfo=zone).astimezone(datetime.UTC)
        yield f"{local.year}-{local.month:02}", begin, min(end, following)
        if end <= following:
            return
        begin = following


def _words(start: Start, keys: Sequence[str], month: str) -> Iterator[tuple[str, ...]]:
    for label in start.labels or ("",) if "label" in keys else ("",):
        words = {**start.words, "month": month, "label": label, "state": str(start.state)}
        yield tuple(_label(start, key) if ":" in key else words[key] for key in keys)


def _label(start: Start, key: str) -> str:
    """Return the value of a label for `label:KEY`."""
    begin = f"{key.partition(':')[2]}="
    values = (label.removeprefix(begin) for label in start.labels if label.startswith(begin))
    return next(values, "")


def _usage(words: Mapping[str, str], parts: Sequence[_Part]) -> Usage:
    wasted = [part for part in parts if part.start.state in WASTED]
    hours, shares = {}, []
    for resource in ("gpus", "cpus", "nodes"):
        hours[resource] = sum(part.used(resource) for part in parts)
        if hours[resource]:
            shares.append(sum(part.used(resource) for part in wasted) / hours[resource])
    return Usage(
        words=words,
        jobs=len({part.start.row for part in parts}),
        starts=len({(part.start.row, part.start.started_at) for part in parts}),
        gpu_hours=hours["gpus"],
        core_hours=hours["cpus"],
        node_hours=hours["nodes"],
        wasted_share=shares[0] if shares else None,
        unknown_gpus=sum(part.start.gpus is None for part in parts),
        unknown_cpus=sum(part.start.cpus is None for part in parts),
    )
