"""Environments of attempts, each stored once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "environments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environments")),
        sa.UniqueConstraint("sha256", name=op.f("uq_environments_sha256")),
    )
    op.create_table(
        "attempt_environments",
        sa.Column("job_row", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=True),
        sa.Column("placement", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_row"],
            ["jobs.row"],
            name=op.f("fk_attempt_environments_job_row_jobs"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environments.id"],
            name=op.f("fk_attempt_environments_environment_id_environments"),
        ),
        sa.PrimaryKeyConstraint("job_row", "attempt", name=op.f("pk_attempt_environments")),
    )
    op.create_index(
        op.f("ix_attempt_environments_environment_id"), "attempt_environments", ["environment_id"]
    )
