"""What all stores share, and what SQLite and PostgreSQL write differently."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext import compiler
from sqlalchemy.sql import functions


class _Elements(functions.FunctionElement[Any]):
    """The elements of a JSON list as a table with the column `value`."""

    inherit_cache = True
    name = "elements"


@compiler.compiles(_Elements, "sqlite")
def _elements_in_sqlite(element: Any, compiled: Any, **options: Any) -> str:
    return f"json_each({compiled.process(element.clauses, **options)})"


@compiler.compiles(_Elements, "postgresql")
def _elements_in_postgresql(element: Any, compiled: Any, **options: Any) -> str:
    return f"json_array_elements_text(CAST({compiled.process(element.clauses, **options)} AS json))"


def has_label(labels: sa.ColumnElement[str], label: str) -> sa.ColumnElement[bool]:
    """Return whether a column with a JSON list of texts contains this one."""
    elements = _Elements(labels).table_valued("value")
    return sa.exists(sa.select(elements.c.value).where(elements.c.value == label))


def among(column: sa.ColumnElement[Any], values: Collection[Any]) -> sa.ColumnElement[bool]:
    """Return whether a column has one of the values.

    They are bound as one JSON list, because SQLite binds at most 32,766 values.
    """
    if not values:
        return sa.false()
    # Not as ASCII: a byte that is not UTF-8 then raises UnicodeEncodeError, as in other statements.
    listed = sa.literal(json.dumps(list(values), ensure_ascii=False), sa.Text())
    element = _Elements(listed).table_valued("value").c.value
    is_text = isinstance(next(iter(values)), str)
    return column.in_(sa.select(element if is_text else sa.cast(element, sa.BigInteger)))


class Store:
    """Base of the stores, which contain all statements of a subject within one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return self._connection.execute(statement).all()

    def _changed(
        self, statement: sa.Update, parameters: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        """Run an update and return the number of changed rows."""
        return self._connection.execute(statement, parameters).rowcount

    def _insert(self, table: sa.Table, values: Mapping[str, Any]) -> int:
        """Insert a row and return its number."""
        result = self._connection.execute(sa.insert(table), values)
        assert result.inserted_primary_key is not None
        return int(result.inserted_primary_key[0])

    def _put(self, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows, each in place of the row with the same primary key."""
        keys = [column.name for column in table.primary_key]
        by_key = {tuple(row[key] for key in keys): row for row in rows}
        if by_key:
            is_old = [table.c[key] == sa.bindparam(f"old_{key}") for key in keys]
            old = [{f"old_{key}": row[key] for key in keys} for row in by_key.values()]
            self._connection.execute(sa.delete(table).where(*is_old), old)
            self._connection.execute(sa.insert(table), [*by_key.values()])
