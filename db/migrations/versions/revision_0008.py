"""The service: its lease, schedules, recoveries, dependencies, and notices on their way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("continues", sa.Integer(), nullable=True))
    op.add_column("jobs", sa.Column("recovers", sa.Boolean(), nullable=True))
    op.create_index(op.f("ix_jobs_continues"), "jobs", ["continues"])
    op.create_index(op.f("ix_jobs_recovers_settled"), "jobs", ["recovers", "settled"])
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("boot_id", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("start_ticks", sa.BigInteger(), nullable=True),
        sa.Column("command", sa.Text(), nullable=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("renewed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("renewals", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "schedules",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("tz", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("scheduler", sa.Text(), nullable=False),
        sa.Column("catchup", sa.Text(), nullable=False),
        sa.Column("grace_seconds", sa.BigInteger(), nullable=False),
        sa.Column("overlap", sa.Text(), nullable=False),
        sa.Column("jitter_seconds", sa.BigInteger(), nullable=False),
        sa.Column("baseline", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("source_hash", sa.Text(), nullable=True),
        sa.Column("argv", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_schedules_name"), "schedules", ["name"])
    op.create_table(
        "firings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("schedule_id", sa.Integer(), nullable=False),
        sa.Column("planned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("by_hand", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sweep_id", sa.Integer(), nullable=True),
        sa.Column("job_row", sa.Integer(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("verdict_detail", sa.Text(), nullable=True),
        sa.Column("verdict_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["job_row"], ["jobs.row"], name=op.f("fk_firings_job_row_jobs")),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeps.id"], name=op.f("fk_firings_sweep_id_sweeps")
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"],
            ["schedules.id"],
            name=op.f("fk_firings_schedule_id_schedules"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_firings")),
        sa.UniqueConstraint(
            "schedule_id", "planned_at", name=op.f("uq_firings_schedule_id_planned_at")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_firings_job_row"), "firings", ["job_row"])
    op.create_index(op.f("ix_firings_state_verdict_at"), "firings", ["state", "verdict_at"])
    op.create_index(op.f("ix_firings_sweep_id"), "firings", ["sweep_id"])
    op.create_table(
        "recoveries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_row", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("next_job_row", sa.Integer(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("changes", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_row"], ["jobs.row"], name=op.f("fk_recoveries_job_row_jobs"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["next_job_row"], ["jobs.row"], name=op.f("fk_recoveries_next_job_row_jobs")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recoveries")),
        sa.UniqueConstraint("job_row", "attempt", name=op.f("uq_recoveries_job_row_attempt")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_recoveries_state"), "recoveries", ["state"])
    op.create_table(
        "dependencies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_row", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("on_job", sa.Integer(), nullable=True),
        sa.Column("on_sweep", sa.Integer(), nullable=True),
        sa.Column("turned_to", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["on_job"], ["jobs.row"], name=op.f("fk_dependencies_on_job_jobs")),
        sa.ForeignKeyConstraint(
            ["on_sweep"], ["sweeps.id"], name=op.f("fk_dependencies_on_sweep_sweeps")
        ),
        sa.ForeignKeyConstraint(
            ["job_row"], ["jobs.row"], name=op.f("fk_dependencies_job_row_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dependencies")),
    )
    op.create_index(op.f("ix_dependencies_job_row"), "dependencies", ["job_row"])
    op.create_index(op.f("ix_dependencies_on_job"), "dependencies", ["on_job"])
    op.create_index(op.f("ix_dependencies_on_sweep"), "dependencies", ["on_sweep"])
    op.create_table(
        "graphs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("scheduler", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("argv", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_graphs")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_graphs_name"), "graphs", ["name"])
    op.create_table(
        "graph_nodes",
        sa.Column("graph_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("job_row", sa.Integer(), nullable=True),
        sa.Column("sweep_id", sa.Integer(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("given_up", sa.Text(), nullable=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_row"], ["jobs.row"], name=op.f("fk_graph_nodes_job_row_jobs")
        ),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeps.id"], name=op.f("fk_graph_nodes_sweep_id_sweeps")
        ),
        sa.ForeignKeyConstraint(
            ["graph_id"],
            ["graphs.id"],
            name=op.f("fk_graph_nodes_graph_id_graphs"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("graph_id", "name", name=op.f("pk_graph_nodes")),
    )
    op.create_table(
        "notices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("job_row", sa.Integer(), nullable=True),
        sa.Column("sweep_id", sa.Integer(), nullable=True),
        sa.Column("schedule_id", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
        sa.UniqueConstraint("key", name=op.f("uq_notices_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "deliveries",
        sa.Column("notice_id", sa.Integer(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["notice_id"],
            ["notices.id"],
            name=op.f("fk_deliveries_notice_id_notices"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("notice_id", "channel", name=op.f("pk_deliveries")),
    )
    op.create_index(op.f("ix_deliveries_state_next_at"), "deliveries", ["state", "next_at"])
