"""The entry point of Alembic: it runs migrations on the connection of db/upgrades.py."""

from __future__ import annotations

from alembic import context

from db import tables

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("migrations run through `orchestrator db upgrade`, not through `alembic`")
context.configure(
    connection=connection,
    target_metadata=tables.METADATA,
    # SQLite cannot alter most of a table; batch mode copies it instead.
    render_as_batch=True,
    # The caller's transaction holds all of it: the tables are the old ones or the new ones.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
