"""Rows of the database <-> records. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
import operator
from collections.abc import Sequence

from db import metrics, models, series
from orchestrator import jobs


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogCursor:
    """How far one file of a job has been read."""

    path: str
    #: st_dev and st_ino of the file; 0 while none was seen
    device: int = 0
    inode: int = 0
    #: next byte to read
    offset_bytes: int = 0
    #: number of the last line that was read
    line: int = 0
    #: JSON of the reader's state at that place
    carry: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredMetric:
    """A metric and the job it belongs to."""

    #: its own row number, in the order of reading
    row: int
    job: jobs.Job
    metric: jobs.Metric


_INT64 = range(-(2**63), 2**63)


def metric_record(row: series.MetricRow, path: str | None) -> jobs.Metric:
    return jobs.Metric(
        name=row.name,
        value=math.nan if row.value is None else row.value,
        unit=row.unit,
        step=row.step,
        epoch=row.epoch,
        rank=row.rank,
        world_size=row.world_size,
        time=None if row.time is None else row.time.replace(tzinfo=datetime.UTC),
        attempt=row.attempt,
        source=row.source,
        path=path or "",
        line=row.line,
    )


def numbers_of(found: Sequence[jobs.Metric]) -> list[metrics.Numbers]:
    """Return the lines of metrics; a count that no program means becomes none."""
    lines: list[metrics.Numbers] = []
    for about, several in itertools.groupby(found, key=_line_of):
        path, source, attempt, rank, world_size, step, epoch, time, line = about
        told = list(several)
        lines.append(
            metrics.Numbers(
                path=path,
                source=source,
                attempt=attempt,
                rank=_int64(rank),
                world_size=_int64(world_size),
                names=tuple((metric.name, metric.unit) for metric in told),
                step=_int64(step),
                epoch=_int64(epoch),
                time=time,
                line=line,
                values=tuple(metric.value for metric in told),
            )
        )
    return lines


_line_of = operator.attrgetter(
    *("path", "source", "attempt", "rank", "world_size", "step", "epoch", "time", "line")
)


def _int64(count: int | None) -> int | None:
    # A torn or hostile log line can hold any number of digits; the database holds 64 bits.
    return count if count is not None and count in _INT64 else None


def cursor_record(row: models.LogCursor) -> LogCursor:
    return LogCursor(
        path=row.path,
        device=int(row.device),
        inode=int(row.inode),
        offset_bytes=row.offset_bytes,
        line=row.line,
        carry=row.carry,
    )
