"""`db check`: every stored value is read, and rows are compared with the rows that they name."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import exc

from db import tables
from db.tables import column_types
from db.tables.jobs import ATTEMPTS, JOBS, SUBMISSIONS
from db.tables.sweeps import SWEEP_POINTS, SWEEP_SHAPES

#: Rows in memory at a time.
_PART_ROWS = 500
#: Takes a row by its columns; yields the wrong columns, each with what is wrong.
RowCheck: TypeAlias = Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]]
#: By table.
RowChecks: TypeAlias = Mapping[str, RowCheck]
#: Columns that name rows of another table without a foreign key; none of those is deleted alone.
_LINKS = (
    ("jobs", "continues", "jobs", "row"),
    ("metric_sets", "log_id", "log_cursors", "id"),
    ("dependencies", "turned_to", "jobs", "row"),
)
#: Statements that select contradicting rows, each with table, column and problem.
_CONTRADICTIONS = (
    (
        sa.select(JOBS).where(JOBS.c.continues >= JOBS.c.row),
        *(JOBS, "continues", "names a job that is not older"),
    ),
    (
        sa.select(JOBS)
        .join(SUBMISSIONS, SUBMISSIONS.c.id == JOBS.c.submission_id)
        .where(JOBS.c.tracked_name.is_not(None))
        .where(sa.cast(SUBMISSIONS.c.provenance, sa.Text).not_like('%"slurm"%')),
        *(JOBS, "tracked_name", "is set, and the provenance of its submission lacks `slurm`"),
    ),
    (
        sa.select(ATTEMPTS)
        .join(JOBS, JOBS.c.row == ATTEMPTS.c.job_row)
        .where(ATTEMPTS.c.number > JOBS.c.attempt),
        *(ATTEMPTS, "number", "is larger than the attempt of its job"),
    ),
    (
        sa.select(SWEEP_POINTS)
        .join(SWEEP_SHAPES, SWEEP_SHAPES.c.id == SWEEP_POINTS.c.shape_id)
        .where(SWEEP_SHAPES.c.sweep_id != SWEEP_POINTS.c.sweep_id),
        *(SWEEP_POINTS, "shape_id", "names a shape of another sweep"),
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong in the database."""

    #: "" if the table is unknown
    table: str = ""
    #: `@7`, or the values of a key of several columns; "" if it is not about one row
    row: str = ""
    column: str = ""
    problem: str

    def __str__(self) -> str:
        """Return `TABLE row @7: PROBLEM`."""
        subject = " ".join(filter(None, [self.table, self.row and f"row {self.row}"]))
        return f"{subject}: {self.problem}" if subject else self.problem


def check_all(
    connection: sa.Connection, checks: RowChecks, *, until: float = math.inf
) -> Iterator[Finding]:
    """Yield what is wrong with rows, until `until` of time.monotonic()."""
    # The table with the most rows comes last.
    for table in sorted(
        tables.METADATA.sorted_tables, key=lambda each: each.name == "metric_lines"
    ):
        yield from check_table(connection, table, checks.get(table.name), until=until)
    yield from _missing_rows(connection)
    for statement, contradicting, column, problem in _CONTRADICTIONS:
        keys = statement.with_only_columns(*contradicting.primary_key)
        yield from _search(connection, keys, contradicting, column, problem)


def check_table(
    connection: sa.Connection,
    table: sa.Table,
    check: RowCheck | None = None,
    *,
    column: str | None = None,
    until: float = math.inf,
) -> Iterator[Finding]:
    """Yield what is wrong with the rows of a table, or only with the values of one column."""
    dialect = connection.dialect
    columns = [each for each in table.c if each.primary_key or column in (None, each.name)]
    processors = [
        (each, each.type.dialect_impl(dialect).result_processor(dialect, None)) for each in columns
    ]
    # As the driver returns them: a value that cannot be read is a finding here and no error.
    raw = [sa.type_coerce(each, sa.types.NullType()).label(each.name) for each in columns]
    options = {"stream_results": True, "max_row_buffer": _PART_ROWS}
    try:
        result = connection.execute(sa.select(*raw), execution_options=options)
        for part in result.partitions(_PART_ROWS):
            if time.monotonic() > until:
                return
            for row in part:
                yield from _check_row(table, processors, check, row)
    except exc.DBAPIError as error:
        yield Finding(table=table.name, problem=f"not all rows can be read: {error.orig}")


def _check_row(
    table: sa.Table,
    processors: Iterable[tuple[sa.Column[Any], Callable[[Any], Any] | None]],
    check: RowCheck | None,
    row: sa.Row[*tuple[Any, ...]],
) -> Iterator[Finding]:
    values, damaged = {}, []
    for (column, processor), value in zip(processors, row, strict=True):
        try:
            if value is None and not column.nullable:
                raise column_types.DamagedValueError(table.name, column.name, None, "")
            values[column.name] = value if processor is None else processor(value)
        except column_types.DamagedValueError as error:
            problem = column_types.wrong_value(column.name, value, error.expected)
            damaged.append((column.name, problem))
    if check is not None and not damaged:
        damaged = [(name, f"{name} {problem}") for name, problem in check(values)]
    for name, problem in damaged:
        yield Finding(table=table.name, row=_key(table, row), column=name, problem=problem)


def _key(table: sa.Table, row: sa.Row[*tuple[Any, ...]]) -> str:
    keys = [row._mapping[column.name] for column in table.primary_key]
    if len(keys) == 1 and type(keys[0]) is int:
        return f"@{keys[0]}"
    return ", ".join(map(repr, keys))


def _missing_rows(connection: sa.Connection) -> Iterator[Finding]:
    """Yield the rows that name a row which does not exist."""
    known = tables.METADATA.tables
    foreign_keys = sorted(
        (table.name, key.parent.name, key.column.table.name, key.column.name)
        for table in known.values()
        for key in table.foreign_keys
    )
    for table_name, column, target_name, key in [*foreign_keys, *_LINKS]:
        table, target = known[table_name], known[target_name].alias("target")
        statement = (
            sa.select(*table.primary_key, table.c[column])
            .where(table.c[column].is_not(None))
            .where(~sa.exists().where(target.c[key] == table.c[column]))
        )
        problem = f"is {{value}}, and {target_name} has no such row"
        yield from _search(connection, statement, table, column, problem)


def _search(
    connection: sa.Connection, statement: sa.Select[Any], table: sa.Table, column: str, problem: str
) -> Iterator[Finding]:
    """Yield the rows of a statement; `problem` may contain the column's `{value}`."""
    try:
        for row in connection.execute(statement):
            text = problem.format(value=row._mapping.get(column))
            yield Finding(
                table=table.name, row=_key(table, row), column=column, problem=f"{column} {text}"
            )
    except column_types.DamagedValueError:
        # check_table reported it.
        return
    except exc.DBAPIError as error:
        yield Finding(table=table.name, problem=f"cannot be searched: {error.orig}")
