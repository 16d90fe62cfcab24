"""Parts of statements that several stores use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import orm

from db import dialects, models

#: Values of one kind in one statement: SQLite binds 32,766.
MOST_VALUES = 10_000
#: Columns of the submission that identify its jobs to people.
OF_SUBMISSION = ("token", "cluster", "scheduler", "name", "run_dir")


def select_jobs() -> sa.Select[Any]:
    """Return a select of all columns of jobs, with OF_SUBMISSION.

    Jobs are read as columns: an object of the ORM for each takes four times as long, and its
    mappers must be set up first in each process.
    """
    jobs, submissions = models.Job.__table__, models.Submission.__table__
    columns = [*jobs.c, *(submissions.c[name] for name in OF_SUBMISSION)]
    return sa.select(*columns).join_from(jobs, submissions)


def among(
    column: sa.ColumnElement[Any] | orm.InstrumentedAttribute[Any], values: Collection[Any]
) -> sa.ColumnElement[bool]:
    """Return whether the column has one of the values; very many are bound as one value."""
    if len(values) <= MOST_VALUES:
        return column.in_(values)
    texts = isinstance(next(iter(values)), str)
    return column.in_(dialects.each_text(values) if texts else dialects.each(values))


def portions(items: Collection[int]) -> Iterator[Sequence[int]]:
    """Yield the items in portions that fit into one statement."""
    listed = list(items)
    for start in range(0, len(listed), MOST_VALUES):
        yield listed[start : start + MOST_VALUES]


def row_count(result: sa.Result[Any]) -> int:
    """Return how many rows a statement changed."""
    return cast("sa.CursorResult[Any]", result).rowcount
