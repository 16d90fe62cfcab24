"""Submissions that wait for room: when they are sent again, how often they were refused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # SQLite adds columns in place; a copy of the table is not needed.
    op.add_column("jobs", sa.Column("resend_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(
        "jobs", sa.Column("refusals", sa.Integer(), nullable=False, server_default=sa.text("0"))
    )
    op.create_index(op.f("ix_jobs_resend_at"), "jobs", ["resend_at"])
