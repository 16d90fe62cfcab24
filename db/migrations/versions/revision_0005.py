"""Baselines: what jobs showed, kept under a name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "baselines",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("measurements", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_baselines")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_baselines_name"), "baselines", ["name"])
