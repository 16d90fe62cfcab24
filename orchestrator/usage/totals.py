"""Sums up GPU-hours, core-hours and node-hours of jobs by some keys."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator import jobs
from orchestrator.jobs import JobState

#: Keys to group by, besides `label:KEY`.
KEYS = ("job", "name", "sweep", "label", "month", "partition", "account", "cluster", "state")
#: Work with other ends has to be repeated. Preempted jobs continued.
_KEPT = {JobState.COMPLETED, JobState.PREEMPTED, JobState.REVOKED, JobState.NOT_SUBMITTED}
WASTED = jobs.TERMINAL - _KEPT


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    job: jobs.Job
    state: JobState
    started_at: datetime.datetime
    #: of a running job, now
    ended_at: datetime.datetime

    def words(self, keys: Sequence[str], month: str) -> Iterator[tuple[str, ...]]:
        """Yield the values of the keys, once for each label if that is a key."""
        job = self.job
        words = {
            "job": job.job_id or f"@{job.row}",
            "name": job.name,
            "sweep": job.sweep or "",
            "partition": job.partition or "",
            "account": job.account or "",
            "cluster": job.cluster,
            "month": month,
            "state": str(self.state),
        }
        for label in reversed(job.labels):
            name, _, value = label.partition("=")
            words[f"label:{name}"] = value
        for label in job.labels or ("",) if "label" in keys else ("",):
            words["label"] = label
            yield tuple(words.get(key, "") for key in keys)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
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
    # A start, or the part of it within one month, and its hours.
    groups: dict[tuple[str, ...], list[tuple[Start, float]]] = {}
    for start in starts:
        begin = max(start.started_at, since) if since is not None else start.started_at
        end = min(start.ended_at, until) if until is not None else start.ended_at
        if end < begin or (end == begin and start.ended_at > start.started_at):
            continue
        spans = [*_months(begin, end, zone)] if "month" in keys else [("", begin, end)]
        for month, first, last in spans:
            for words in start.words(keys, month):
                hours = (last - first).total_seconds() / 3600
                groups.setdefault(words, []).append((start, hours))
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


def _usage(words: Mapping[str, str], parts: Sequence[tuple[Start, float]]) -> Usage:
    def hours(resource: str, states: Iterable[JobState] = JobState) -> float:
        return sum(
            (getattr(start.job, resource) or 0) * hours
            for start, hours in parts
            if start.state in states
        )

    resources = ("gpus", "cpus", "nodes")
    shares = [hours(name, WASTED) / hours(name) for name in resources if hours(name)]
    return Usage(
        words=words,
        jobs=len({start.job.row for start, _ in parts}),
        starts=len({(start.job.row, start.started_at) for start, _ in parts}),
        gpu_hours=hours("gpus"),
        core_hours=hours("cpus"),
        node_hours=hours("nodes"),
        wasted_share=shares[0] if shares else None,
        unknown_gpus=sum(start.job.gpus is None for start, _ in parts),
        unknown_cpus=sum(start.job.cpus is None for start, _ in parts),
    )
