"""How tables are defined: their columns, and the names of constraints."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables import column_types

#: Constraint names are fixed, so that a migration can name what it changes on any database.
METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def table(name: str, *items: sa.schema.SchemaItem, numbered: bool = False) -> sa.Table:
    """Define a table. `numbered`: SQLite, too, never assigns the number of a deleted row again."""
    new = sa.Table(name, METADATA, *items, sqlite_autoincrement=numbered)
    for column in new.c:
        if isinstance(column.type, column_types.CheckedType):
            column.type = column.type.of_column(name, column.name)
    return new


def key(name: str, kind: column_types.CheckedType = column_types.WHOLE) -> sa.Column[int]:
    """Define the column that numbers the rows."""
    return sa.Column(name, kind, primary_key=True)


def required(kind: column_types.CheckedType, *names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def optional(kind: column_types.CheckedType, *names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, kind, nullable=True) for name in names]


def reference(
    name: str, target: str, *, optional: bool = False, with_parent: bool = False
) -> sa.Column[int]:
    """Define a foreign key. `with_parent`: rows are deleted with the row that they name."""
    foreign_key = sa.ForeignKey(target, ondelete="CASCADE" if with_parent else None)
    return sa.Column(name, column_types.WHOLE, foreign_key, nullable=optional)


def index(*columns: str) -> sa.Index:
    return sa.Index(None, *columns)
