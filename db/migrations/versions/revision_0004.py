"""Sweeps: their shapes, and their points with the newest job of each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index(op.f("ix_jobs_sweep"), "jobs", ["sweep"])
    op.create_table(
        "sweeps",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("scheduler", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweeps")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_sweeps_name"), "sweeps", ["name"])
    op.create_table(
        "sweep_shapes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("gpu_hours", sa.Double(), nullable=True),
        sa.Column("node_hours", sa.Double(), nullable=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["sweep_id"],
            ["sweeps.id"],
            name=op.f("fk_sweep_shapes_sweep_id_sweeps"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweep_shapes")),
    )
    op.create_index(op.f("ix_sweep_shapes_sweep_id"), "sweep_shapes", ["sweep_id"])
    op.create_table(
        "sweep_points",
        sa.Column("sweep_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("shape_id", sa.Integer(), nullable=False),
        sa.Column("job_row", sa.Integer(), nullable=True),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("changes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["sweep_id"],
            ["sweeps.id"],
            name=op.f("fk_sweep_points_sweep_id_sweeps"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["shape_id"],
            ["sweep_shapes.id"],
            name=op.f("fk_sweep_points_shape_id_sweep_shapes"),
        ),
        sa.ForeignKeyConstraint(
            ["job_row"], ["jobs.row"], name=op.f("fk_sweep_points_job_row_jobs")
        ),
        sa.PrimaryKeyConstraint("sweep_id", "number", name=op.f("pk_sweep_points")),
        sa.UniqueConstraint("sweep_id", "identity", name=op.f("uq_sweep_points_sweep_id_identity")),
        sa.UniqueConstraint("job_row", name=op.f("uq_sweep_points_job_row")),
    )
    op.create_index("ix_sweep_points_jobs", "sweep_points", ["sweep_id", "job_row"])
