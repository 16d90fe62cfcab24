"""What is read from the files of a job, how far they have been read, and queries for metrics."""

from __future__ import annotations

import array
import dataclasses
import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from orchestrator import jobs

Numbers: TypeAlias = "array.array[float]"


class ParsedLine(NamedTuple):
    """The metrics of one line of a log or a metrics.jsonl."""

    #: "": the file is unknown
    path: str
    #: log:PATTERN or jsonl
    source: str
    attempt: int
    rank: int | None
    world_size: int | None
    #: name and unit of each metric. Lines that share this object are stored faster.
    names: tuple[tuple[str, str], ...]
    step: int | None
    epoch: int | None
    time: datetime.datetime | None
    #: number of the line in its file
    line: int | None
    #: in the order of the names
    values: tuple[float, ...]

    @classmethod
    def of(cls, metric: jobs.Metric) -> ParsedLine:
        """Return a line with this metric alone."""
        shared: dict[str, Any] = {name: getattr(metric, name) for name in _SHARED}
        return cls(names=((metric.name, metric.unit),), values=(metric.value,), **shared)

    def metrics(self) -> list[jobs.Metric]:
        shared: dict[str, Any] = {name: getattr(self, name) for name in _SHARED}
        return [
            jobs.Metric(name=name, unit=unit, value=value, **shared)
            for (name, unit), value in zip(self.names, self.values, strict=True)
        ]


#: Fields of a line that each of its metrics has.
_SHARED = ("path", "source", "attempt", "rank", "world_size", "step", "epoch", "time", "line")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogCursor:
    """How far one file of a job has been read. Stored in one transaction with its metrics."""

    path: str
    #: st_dev and st_ino of the file; 0 until the file is seen
    device: int = 0
    inode: int = 0
    #: next byte to read
    offset_bytes: int = 0
    #: line ends so far
    line: int = 0
    #: of the next line; None: no banner so far
    attempt: int | None = None
    #: highest attempt with a banner in this file; -1: none
    banner: int = -1
    #: skip the rest of a line: it is too long, or its beginning was already returned
    skipping: bool = False
    #: digest that detects a file with other content and the same inode; "": unknown
    fingerprint: str = ""
    #: what the lines so far mean for later ones: state of patterns.Matcher
    matching: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricQuery:
    """Selects metrics that meet all given conditions. Ranges include their ends."""

    job_rows: Collection[int]
    #: names or shell patterns such as `val_*`; empty: all
    names: Collection[str] = ()
    attempt: int | None = None
    rank: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    first_epoch: int | None = None
    last_epoch: int | None = None
    #: metrics without a time match neither
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    #: "log:PATTERN", "jsonl" or "log" (all patterns); None: all
    source: str | None = None
    #: skip metrics from the log if metrics.jsonl has the same name for the same attempt
    prefer_jsonl: bool = False
    #: only metrics stored after the one with this number
    after: int | None = None
    #: only the last N of each job, name and rank
    last: int | None = None
    #: only every Nth of each job, name and rank, starting with the first
    every: int | None = None
    #: only N of each job, name and rank, evenly spaced, including the first and the last
    points: int | None = None


class MetricRow(NamedTuple):
    #: unique, in the order of reading
    id: int
    job_row: int
    name: str
    #: None: NaN
    value: float | None
    unit: str
    step: int | None
    epoch: int | None
    rank: int | None
    world_size: int | None
    #: UTC, without a time zone
    time: datetime.datetime | None
    attempt: int
    source: str
    #: number of the log cursor of its file
    log_id: int | None
    #: number of the line in its file
    line: int | None


class SetLines(NamedTuple):
    """The lines of a metric set, for curves. NaN stands also for a missing number."""

    job_row: int
    attempt: int
    rank: int | None
    #: name and unit of each metric
    names: list[tuple[str, str]]
    #: numbers of the lines
    ids: Numbers
    #: for each name, one for each line
    values: list[Numbers]
    #: step or epoch of each line; None: times were asked for
    positions: Numbers | None
    #: of each line; None: steps or epochs were asked for
    times: Sequence[datetime.datetime | None] | None
