"""Whether what is stored can be read: each value of each row, and what rows say of each other."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc

from db import errors, service_tables

#: Rows that are held at a time.
_PART = 500
#: Returns the wrong columns of a row, given by its columns, each with what is wrong.
Check: TypeAlias = Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]]
#: By table.
Checks: TypeAlias = Mapping[str, Check]
#: Columns that name rows of another table without a foreign key: none of these is deleted alone.
_LINKS = (
    ("jobs", "continues", "jobs", "row"),
    ("metric_sets", "log_id", "log_cursors", "id"),
    ("dependencies", "turned_to", "jobs", "row"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong with what is stored."""

    #: "": it is not known of which table
    table: str = ""
    #: `@7`, or the values of a key of several columns; "": it is not of one row
    row: str = ""
    column: str = ""
    problem: str

    def __str__(self) -> str:
        """Return `TABLE row @7: PROBLEM`."""
        place = " ".join(filter(None, [self.table, self.row and f"row {self.row}"]))
        return f"{place}: {self.problem}" if place else self.problem


def tables() -> list[sa.Table]:
    """Return all tables, those with very many rows last."""
    found = service_tables.METADATA.sorted_tables
    return sorted(found, key=lambda table: table.name == "metric_lines")


def of_table(
    connection: sa.Connection,
    table: sa.Table,
    checks: Checks,
    *,
    column: str | None = None,
    until: float = math.inf,
) -> Iterator[Finding]:
    """Yield what is wrong with the rows of a table; with `column` only with the values there.

    Bounded memory: the rows come part by part. `until`: no longer, by time.monotonic().
    """
    wanted = [one for one in table.c if one.primary_key or column in (None, one.name)]
    dialect = connection.dialect
    processors = {
        one.name: one.type.dialect_impl(dialect).result_processor(dialect, None) for one in wanted
    }
    columns = [(processors[one.name], one.nullable) for one in wanted]
    check = checks.get(table.name) if column is None else None
    # As the driver gives them: a value that cannot be read is no error here.
    raw = [sa.type_coerce(one, sa.types.NullType()).label(one.name) for one in wanted]
    options = {"stream_results": True, "max_row_buffer": _PART}
    try:
        result = connection.execute(sa.select(*raw), execution_options=options)
        for part in result.partitions(_PART):
            if time.monotonic() > until:
                return
            for row in part:
                if check is None and _is_good(row, columns):
                    continue
                yield from _of_row(table, wanted, processors, check, dict(row._mapping))
    except exc.DBAPIError as error:
        yield Finding(table=table.name, problem=f"not all rows can be read: {error.orig}")


def _is_good(
    row: Sequence[Any], columns: Sequence[tuple[Callable[[Any], Any] | None, bool | None]]
) -> bool:
    """Return whether each value can be read: nearly all rows are good, and there are very many."""
    try:
        for value, (processor, nullable) in zip(row, columns, strict=True):
            if value is None:
                if not nullable:
                    return False
            elif processor is not None:
                processor(value)
    except errors.DamagedValueError:
        return False
    return True


def _of_row(
    table: sa.Table,
    wanted: Sequence[sa.Column[Any]],
    processors: Mapping[str, Callable[[Any], Any] | None],
    check: Check | None,
    row: Mapping[str, Any],
) -> Iterator[Finding]:
    values = {}
    for column in wanted:
        value = row[column.name]
        processor = processors[column.name]
        try:
            values[column.name] = value if processor is None else processor(value)
            if value is None and not column.nullable:
                raise errors.DamagedValueError(table.name, column.name, None, "")
        except errors.DamagedValueError as error:
            values.pop(column.name, None)
            problem = errors.wrong_value(column.name, value, error.expected)
            yield Finding(
                table=table.name, row=_key(table, row), column=column.name, problem=problem
            )
    # Where a column cannot be read, there is no row to look at.
    if check is not None and len(values) == len(wanted):
        for name, problem in check(values):
            yield Finding(
                table=table.name, row=_key(table, row), column=name, problem=f"{name} {problem}"
            )


def _key(table: sa.Table, row: Mapping[str, Any]) -> str:
    keys = [row[column.name] for column in table.primary_key]
    if len(keys) == 1 and type(keys[0]) is int:
        return f"@{keys[0]}"
    return ", ".join(map(repr, keys))


def of_links(connection: sa.Connection) -> Iterator[Finding]:
    """Yield the rows that name a row which is not there, or contradict another one."""
    yield from _missing(connection)
    yield from _contradicting(connection)


def _contradicting(connection: sa.Connection) -> Iterator[Finding]:
    known = service_tables.METADATA.tables
    job, attempt = known["jobs"], known["attempts"]
    point, shape = known["sweep_points"], known["sweep_shapes"]
    submission = known["submissions"]
    for table, statement, column, problem in (
        (
            job,
            sa.select(job).where(job.c.continues >= job.c.row),
            "continues",
            "names a job that is not older",
        ),
        (
            job,
            sa.select(job)
            .join(submission, submission.c.id == job.c.submission_id)
            .where(job.c.tracked_name.is_not(None))
            .where(sa.cast(submission.c.provenance, sa.Text).not_like('%"slurm"%')),
            "tracked_name",
            "is set, and the provenance of its submission has nothing of Slurm",
        ),
        (
            attempt,
            sa.select(attempt)
            .join(job, job.c.row == attempt.c.job_row)
            .where(attempt.c.number > job.c.attempt),
            "number",
            "is larger than the attempt of its job",
        ),
        (
            point,
            sa.select(point)
            .join(shape, shape.c.id == point.c.shape_id)
            .where(shape.c.sweep_id != point.c.sweep_id),
            "shape_id",
            "names a shape of another sweep",
        ),
    ):
        keys = statement.with_only_columns(*table.primary_key)
        yield from _search(connection, keys, table, column, problem)


def _missing(connection: sa.Connection) -> Iterator[Finding]:
    known = service_tables.METADATA.tables
    keys = [
        (table.name, key.parent.name, key.column.table.name, key.column.name)
        for table in tables()
        for key in table.foreign_keys
    ]
    for table_name, column, other_name, key in [*sorted(keys), *_LINKS]:
        table, other = known[table_name], known[other_name].alias("other")
        statement = (
            sa.select(*table.primary_key, table.c[column])
            .where(table.c[column].is_not(None))
            .where(~sa.exists().where(other.c[key] == table.c[column]))
        )
        yield from _search(
            connection, statement, table, column, f"is {{value}}, and {other_name} has no such row"
        )


def _search(
    connection: sa.Connection, statement: sa.Select[Any], table: sa.Table, column: str, problem: str
) -> Iterator[Finding]:
    """Yield the rows that `statement` finds; `problem` may name the column's `{value}`."""
    try:
        for row in connection.execute(statement).mappings():
            text = problem.format(value=row.get(column))
            key = _key(table, dict(row))
            yield Finding(table=table.name, row=key, column=column, problem=f"{column} {text}")
    except errors.DamagedValueError:
        # It was found where the rows were looked at.
        return
    except exc.DBAPIError as error:
        yield Finding(table=table.name, problem=f"cannot be searched: {error.orig}")
