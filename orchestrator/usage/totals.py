"""Starts of jobs -> GPU-hours, core-hours and node-hours, by what they are told by. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from orchestrator.jobs import JobState

#: What usage can be told by, beside `label:KEY`.
KEYS = ("job", "name", "sweep", "label", "month", "partition", "account", "cluster", "state")
#: Work that ended so has to be done again. A start that was requeued or preempted went on.
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
_HOUR = 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One start of a job."""

    #: our row number of the job
    row: int
    #: the words that it may be told by
    words: Mapping[str, str]
    labels: tuple[str, ...]
    state: JobState
    started_at: datetime.datetime
    #: of one that runs, now
    ended_at: datetime.datetime
    nodes: int | None
    gpus: int | None
    cpus: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """What starts of jobs had, together."""

    #: value of each key that it was told by
    words: Mapping[str, str]
    jobs: int
    starts: int
    gpu_hours: float
    core_hours: float
    node_hours: float
    #: share of the GPU-hours (without any, of the core-hours, else of the node-hours)
    wasted_share: float | None
    #: starts of which it is not known how many they had; they count as none
    unknown_gpus: int
    unknown_cpus: int


@dataclasses.dataclass(frozen=True)
class _Piece:
    """A start, or that part of it which lies within one month."""

    run: Run
    seconds: float
    words: tuple[str, ...]

    def hours(self, count: int | None) -> float:
        return (count or 0) * self.seconds / _HOUR


def told_by(
    runs: Iterable[Run],
    keys: Sequence[str],
    *,
    since: datetime.datetime | None = None,
    until: datetime.datetime | None = None,
    zone: datetime.tzinfo | None = None,
) -> list[Usage]:
    """Return what these starts had between `since` and `until`, by each value of the keys.

    Months end at midnight of `zone`, this host's unless given. By `label` a job with several
    labels counts under each. Months come in their order, all else by what was most.
    """
    pieces: dict[tuple[str, ...], list[_Piece]] = {}
    for run in runs:
        for piece in _pieces(run, keys, since, until, zone):
            pieces.setdefault(piece.words, []).append(piece)
    found = [_usage(dict(zip(keys, words, strict=True)), of) for words, of in pieces.items()]
    found.sort(key=lambda one: (one.gpu_hours, one.core_hours, one.node_hours), reverse=True)
    return sorted(found, key=lambda one: one.words.get("month", ""))


def _pieces(
    run: Run,
    keys: Sequence[str],
    since: datetime.datetime | None,
    until: datetime.datetime | None,
    zone: datetime.tzinfo | None,
) -> Iterator[_Piece]:
    begin = max(run.started_at, since) if since is not None else run.started_at
    end = min(run.ended_at, until) if until is not None else run.ended_at
    if end < begin or (end == begin and run.ended_at > run.started_at):
        return
    spans = [*_months(begin, end, zone)] if "month" in keys else [("", begin, end)]
    for month, first, last in spans:
        for words in _words(run, keys, month):
            yield _Piece(run, (last - first).total_seconds(), words)


def _months(
    begin: datetime.datetime, end: datetime.datetime, zone: datetime.tzinfo | None
) -> Iterator[tuple[str, datetime.datetime, datetime.datetime]]:
    while True:
        local = begin.astimezone(zone)
        year, month = divmod(local.year * 12 + local.month, 12)
        midnight = datetime.datetime(year, month + 1, 1, tzinfo=zone)
        # Without a zone the host's rule is looked up for that very moment.
        following = midnight.astimezone(datetime.UTC)
        yield f"{local.year}-{local.month:02}", begin, min(end, following)
        if end <= following:
            return
        begin = following


def _words(run: Run, keys: Sequence[str], month: str) -> Iterator[tuple[str, ...]]:
    for label in run.labels or ("",) if "label" in keys else ("",):
        given = {**run.words, "month": month, "label": label, "state": str(run.state)}
        yield tuple(_label(run.labels, key) if ":" in key else given[key] for key in keys)


def _label(labels: Collection[str], key: str) -> str:
    """Return the value of the label that `label:KEY` names."""
    begin = f"{key.partition(':')[2]}="
    return next((label.removeprefix(begin) for label in labels if label.startswith(begin)), "")


def _usage(words: Mapping[str, str], pieces: Sequence[_Piece]) -> Usage:
    sums = [_sums(pieces, name) for name in ("gpus", "cpus", "nodes")]
    (gpu_hours, _), (core_hours, _), (node_hours, _) = sums
    shares = (wasted / whole for whole, wasted in sums if whole)
    return Usage(
        words=words,
        jobs=len({piece.run.row for piece in pieces}),
        starts=len({(piece.run.row, piece.run.started_at) for piece in pieces}),
        gpu_hours=gpu_hours,
        core_hours=core_hours,
        node_hours=node_hours,
        wasted_share=next(shares, None),
        unknown_gpus=sum(piece.run.gpus is None for piece in pieces),
        unknown_cpus=sum(piece.run.cpus is None for piece in pieces),
    )


def _sums(pieces: Sequence[_Piece], name: Literal["gpus", "cpus", "nodes"]) -> tuple[float, float]:
    """Return the hours of one kind, and those of them that were wasted."""
    hours = [(piece, piece.hours(getattr(piece.run, name))) for piece in pieces]
    wasted = sum(spent for piece, spent in hours if piece.run.state in WASTED)
    return sum(spent for _, spent in hours), wasted
