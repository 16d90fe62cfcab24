"""All rows of one database stored in another, empty one, whichever kinds they are."""

from __future__ import annotations

import sqlalchemy as sa

from db import errors, service_tables

#: Rows that are held at a time.
_PART = 5_000
#: Made with the tables: what is copied takes its place.
_SETTINGS = service_tables.METADATA.tables["settings"]


def check_empty(target: sa.Connection, place: str) -> None:
    """Raise NotEmptyError where something is stored already."""
    for table in service_tables.METADATA.sorted_tables:
        if table is not _SETTINGS and target.execute(sa.select(table).limit(1)).first():
            raise errors.NotEmptyError(f"{place} is not empty: {table.name} has rows.")


def copy(source: sa.Connection, target: sa.Connection) -> int:
    """Copy all rows with their numbers; return how many they are."""
    count = 0
    target.execute(sa.delete(_SETTINGS))
    # Parents first.
    for table in service_tables.METADATA.sorted_tables:
        found = source.execute(
            sa.select(table), execution_options={"stream_results": True, "max_row_buffer": _PART}
        )
        for part in found.mappings().partitions(_PART):
            target.execute(sa.insert(table), [dict(row) for row in part])
            count += len(part)
    return count
