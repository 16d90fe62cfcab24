"""How much a job used: its CPUs, its figures once they are final, and what is wrong with it now."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("cpus", sa.Integer(), nullable=True))
    op.add_column("jobs", sa.Column("alerts", sa.Text(), nullable=True))
    op.create_table(
        "used_figures",
        sa.Column("job_row", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("figures", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_row"],
            ["jobs.row"],
            name=op.f("fk_used_figures_job_row_jobs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_row", "attempt", name=op.f("pk_used_figures")),
    )
