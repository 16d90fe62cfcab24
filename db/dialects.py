"""What SQLite and PostgreSQL say in different words."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext import compiler
from sqlalchemy.sql import functions


class _Strings(functions.FunctionElement[str]):
    """The strings of a JSON list, as a table."""

    inherit_cache = True
    name = "strings"


class _Numbers(functions.FunctionElement[int]):
    """The whole numbers of a JSON list, as a table."""

    inherit_cache = True
    name = "numbers"


@compiler.compiles(_Strings, "sqlite")
@compiler.compiles(_Numbers, "sqlite")
def _on_sqlite(element: Any, compiled: Any, **options: Any) -> str:
    return f"json_each({compiled.process(element.clauses, **options)})"


@compiler.compiles(_Strings, "postgresql")
def _strings_on_postgresql(element: Any, compiled: Any, **options: Any) -> str:
    return f"json_array_elements_text(CAST({compiled.process(element.clauses, **options)} AS json))"


@compiler.compiles(_Numbers, "postgresql")
def _numbers_on_postgresql(element: Any, compiled: Any, **options: Any) -> str:
    texts = _strings_on_postgresql(element, compiled, **options)
    return f"(SELECT CAST(value AS bigint) AS value FROM {texts})"


def holds(labels: sa.ColumnElement[str], label: str) -> sa.ColumnElement[bool]:
    """Return whether a column with a JSON list of strings has this one."""
    element = _Strings(labels).table_valued("value")
    return sa.exists(sa.select(element.c.value).where(element.c.value == label))


def each(values: Collection[int]) -> sa.Select[Any]:
    """Return numbers as a table, bound as one value: SQLite binds 32,766 and no more."""
    table = _Numbers(sa.literal(json.dumps(list(values)), sa.Text())).table_valued(
        sa.column("value", sa.BigInteger())
    )
    return sa.select(table.c.value)


def each_text(values: Collection[str]) -> sa.Select[Any]:
    """Return texts as a table, bound as one value."""
    table = _Strings(sa.literal(json.dumps(list(values)), sa.Text())).table_valued("value")
    return sa.select(table.c.value)


def upsert(
    session: orm.Session,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    keys: Collection[str],
) -> None:
    """Store rows, each in place of the one that has the same keys."""
    connection = session.connection()
    made = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    insert = made(table)
    others = {column.name: insert.excluded[column.name] for column in table.c}
    changes = {name: value for name, value in others.items() if name not in keys}
    statement = insert.on_conflict_do_update(index_elements=list(keys), set_=changes)
    connection.execute(statement, [dict(row) for row in rows])


#: Rows of one INSERT of SQLite's: measured, 50 take half the time of 50 with one each.
_ROWS_A_STATEMENT = 50


def insert(session: orm.Session, table: str, columns: Sequence[str], values: Sequence[Any]) -> None:
    """Store rows in their order, given one behind the other; NaN is stored as NULL."""
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        _copy_in(connection, table, columns, values)
        return
    many = _ROWS_A_STATEMENT * len(columns)
    whole = len(values) - len(values) % many
    if whole:
        # sqlite3_bind_double makes NULL of NaN.
        portions = [tuple(values[at : at + many]) for at in range(0, whole, many)]
        connection.exec_driver_sql(_insertion(table, columns, _ROWS_A_STATEMENT), portions)
    if whole < len(values):
        rest = tuple(values[whole:])
        rows = len(rest) // len(columns)
        connection.exec_driver_sql(_insertion(table, columns, rows), rest)


def _insertion(table: str, columns: Sequence[str], rows: int) -> str:
    marks = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([marks] * rows)}"


def _copy_in(
    connection: sa.Connection, table: str, columns: Sequence[str], values: Sequence[Any]
) -> None:
    driver: Any = connection.connection.driver_connection
    width = len(columns)
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
    with driver.cursor() as cursor, cursor.copy(statement) as copy:
        for at in range(0, len(values), width):
            copy.write_row([None if one != one else one for one in values[at : at + width]])
