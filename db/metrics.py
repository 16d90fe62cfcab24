"""Numbers and the places in the files they were read from. None of these commits."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import sqlite

from db import models, queries


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricQuery:
    """Which metrics; all that is given must hold."""

    #: our row numbers of the jobs
    rows: Collection[int]
    names: Collection[str] = ()
    attempt: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    #: "log:PATTERN", "jsonl" or "log" (all patterns); none: all
    source: str | None = None
    #: of one job, name and attempt the metrics.jsonl wins over the log
    prefer_jsonl: bool = False
    #: only the newest so many of each job, name and rank
    last: int | None = None
    #: only the newest so many in all
    limit: int | None = None


def log_cursors(session: orm.Session, rows: Collection[int]) -> list[models.LogCursor]:
    found: list[models.LogCursor] = []
    for portion in queries.portions(rows):
        statement = sa.select(models.LogCursor).where(models.LogCursor.job_row.in_(portion))
        found += session.scalars(statement.order_by(models.LogCursor.id)).all()
    return found


def log_cursor(
    session: orm.Session, row: int, path: str, now: datetime.datetime
) -> models.LogCursor:
    """Return the cursor of one file, at the start of an unknown file when there was none."""
    statement = sa.select(models.LogCursor).where(
        models.LogCursor.job_row == row, models.LogCursor.path == path
    )
    found = session.scalar(statement.with_for_update())
    if found is None:
        found = models.LogCursor(
            job_row=row,
            path=path,
            device="0",
            inode="0",
            offset_bytes=0,
            line=0,
            carry="",
            updated_at=now,
        )
        session.add(found)
        session.flush()
    return found


def add_metrics(
    session: orm.Session,
    row: int,
    metrics: Sequence[Mapping[str, Any]],
    now: datetime.datetime,
) -> int:
    """Store the metrics of a job that are not there yet; return how many that were.

    Each mapping holds the columns, and `path` in place of `log_id`.
    """
    logs = {
        path: log_cursor(session, row, path, now).id
        for path in {metric["path"] for metric in metrics}
        if path
    }
    counts: collections.Counter[str] = collections.Counter()
    values = []
    for metric in metrics:
        said = repr(sorted(metric.items()))
        counts[said] += 1
        columns: dict[str, Any] = {key: metric[key] for key in metric if key != "path"}
        columns["job_row"] = row
        columns["identity"] = _identity(said, counts[said])
        columns["log_id"] = logs.get(metric["path"])
        values.append(columns)
    if not values:
        return 0
    statement = sqlite.insert(models.Metric.__table__).on_conflict_do_nothing(  # type: ignore[arg-type]
        index_elements=["job_row", "identity"]
    )
    return queries.row_count(session.connection().execute(statement, values))


def metrics(session: orm.Session, query: MetricQuery) -> list[tuple[models.Metric, str | None]]:
    """Return metrics and the paths of their files, in the order of jobs and of reading."""
    metric = models.Metric
    chosen = sa.select(metric.id).where(queries.among(metric.job_row, query.rows))
    if query.names:
        chosen = chosen.where(metric.name.in_(query.names))
    if query.attempt is not None:
        chosen = chosen.where(metric.attempt == query.attempt)
    if query.first_step is not None:
        chosen = chosen.where(metric.step >= query.first_step)
    if query.last_step is not None:
        chosen = chosen.where(metric.step <= query.last_step)
    chosen = chosen.where(*_sources(query.source, query.prefer_jsonl))
    if query.last is not None:
        series = (metric.job_row, metric.name, metric.rank)
        age = sa.func.row_number().over(partition_by=series, order_by=metric.id.desc())
        ranked = chosen.add_columns(age.label("age")).subquery()
        chosen = sa.select(ranked.c.id).where(ranked.c.age <= query.last)
    if query.limit is not None:
        newest = chosen.subquery()
        chosen = sa.select(newest.c.id).order_by(newest.c.id.desc()).limit(query.limit)
    statement = (
        sa.select(metric, models.LogCursor.path)
        .outerjoin(models.LogCursor, models.LogCursor.id == metric.log_id)
        .where(metric.id.in_(chosen))
        .order_by(metric.job_row, metric.id)
    )
    return [(row[0], row[1]) for row in session.execute(statement)]


def _sources(source: str | None, prefer_jsonl: bool) -> list[sa.ColumnElement[bool]]:
    metric = models.Metric
    conditions: list[sa.ColumnElement[bool]] = []
    if source == "log":
        conditions.append(metric.source != "jsonl")
    elif source is not None:
        conditions.append(metric.source == source)
    if prefer_jsonl:
        other = orm.aliased(models.Metric)
        better = sa.exists().where(
            other.job_row == metric.job_row,
            other.name == metric.name,
            other.source == "jsonl",
            other.attempt == metric.attempt,
        )
        conditions.append(sa.or_(metric.source == "jsonl", sa.not_(better)))
    return conditions


def _identity(said: str, count: int) -> int:
    digest = hashlib.blake2b(f"{count} {said}".encode(errors="surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)
