"""What all stores share, and what SQLite and PostgreSQL write differently."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext import compiler
from sqlalchemy.sql import functions

_Record = TypeVar("_Record")
#: Columns whose names differ from those of the records.
_RENAMED = {
    **{"row": "id", "sweep_row": "sweep_id", "schedule_row": "schedule_id"},
    "continuation": "turned_to",
}


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


def select(table: sa.Table, record: type[Any]) -> sa.Select[Any]:
    """Return the selection of the fields of a record that a table has."""
    names = {field.name: _column_name(table, field.name) for field in dataclasses.fields(record)}
    return sa.select(
        *(table.c[column].label(field) for field, column in names.items() if column in table.c)
    )


def _column_name(table: sa.Table, field: str) -> str:
    return field if field in table.c else _RENAMED.get(field, field)


class Store:
    """Base of the stores, which contain all statements of a subject within one transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return self._connection.execute(statement).all()

    def _records(self, record: type[_Record], statement: sa.Select[Any]) -> list[_Record]:
        """Return the rows as records, whose fields are the columns."""
        return [record(**row._mapping) for row in self._rows(statement)]

    def _first(self, record: type[_Record], statement: sa.Select[Any]) -> _Record | None:
        return next(iter(self._records(record, statement)), None)

    def _scalar(self, kind: type[_Record], statement: sa.Select[Any]) -> _Record | None:
        """Return the first column of the first row, which has this type."""
        value: _Record | None = self._connection.scalar(statement)
        return value

    def _scalars(self, statement: sa.Select[Any]) -> list[Any]:
        """Return the first column."""
        return [*self._connection.scalars(statement)]

    def _pairs(self, statement: sa.Select[Any]) -> dict[Any, Any]:
        """Return the second column by the first."""
        return {key: value for key, value in self._rows(statement)}

    def _changed(
        self, statement: sa.Update, parameters: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        return self._connection.execute(statement, parameters).rowcount

    def _update(
        self, table: sa.Table, fields: Mapping[str, Any], *conditions: sa.ColumnElement[bool]
    ) -> int:
        """Change the fields of the rows that meet the conditions, and return their number."""
        columns = {_column_name(table, name): value for name, value in fields.items()}
        return self._changed(sa.update(table).where(*conditions).values(columns))

    def _insert(self, table: sa.Table, fields: Mapping[str, Any]) -> int:
        columns = {_column_name(table, name): value for name, value in fields.items()}
        result = self._connection.execute(sa.insert(table), columns)
        assert result.inserted_primary_key is not None
        return int(result.inserted_primary_key[0])

    def _insert_many(self, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows with the same columns."""
        if rows:
            self._connection.execute(sa.insert(table), rows)

    def _put(self, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows, each in place of the row with the same primary key."""
        keys = [column.name for column in table.primary_key]
        by_key = {tuple(row[key] for key in keys): row for row in rows}
        if by_key:
            is_old = [table.c[key] == sa.bindparam(f"old_{key}") for key in keys]
            old = [{f"old_{key}": row[key] for key in keys} for row in by_key.values()]
            self._connection.execute(sa.delete(table).where(*is_old), old)
            self._connection.execute(sa.insert(table), [*by_key.values()])
