"""The first tables: submissions, jobs, attempts, events, metrics, log cursors, refreshes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "refreshes",
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("last_good_squeue_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_good_sacct_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("cluster", name=op.f("pk_refreshes")),
    )
    op.create_table(
        "settings",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_settings")),
    )
    op.create_table(
        "submissions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("scheduler", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("run_dir", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("script", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
        sa.UniqueConstraint("token", name=op.f("uq_submissions_token")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_submissions_name"), "submissions", ["name"])
    op.create_table(
        "jobs",
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Integer(), nullable=False),
        sa.Column("array_task", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("raw_job_id", sa.Text(), nullable=True),
        sa.Column("array_job_id", sa.Text(), nullable=True),
        sa.Column("array_task_id", sa.Integer(), nullable=True),
        sa.Column("raw_state", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_signal", sa.Integer(), nullable=True),
        sa.Column("partition", sa.Text(), nullable=True),
        sa.Column("account", sa.Text(), nullable=True),
        sa.Column("qos", sa.Text(), nullable=True),
        sa.Column("nodes", sa.Integer(), nullable=True),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.Column("node_list", sa.Text(), nullable=True),
        sa.Column("time_limit_seconds", sa.BigInteger(), nullable=True),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("restart_count", sa.Integer(), nullable=False),
        sa.Column("sweep", sa.Text(), nullable=True),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("stdout_path", sa.Text(), nullable=True),
        sa.Column("stderr_path", sa.Text(), nullable=True),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("misses", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("missing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("submitter_host", sa.Text(), nullable=True),
        sa.Column("submitter_boot_id", sa.Text(), nullable=True),
        sa.Column("submitter_pid", sa.Integer(), nullable=True),
        sa.Column("submitter_start_ticks", sa.BigInteger(), nullable=True),
        sa.Column("grace_since", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["submission_id"],
            ["submissions.id"],
            name=op.f("fk_jobs_submission_id_submissions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_jobs")),
        sa.UniqueConstraint(
            "submission_id", "array_task", name=op.f("uq_jobs_submission_id_array_task")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_jobs_array_job_id"), "jobs", ["array_job_id"])
    op.create_index(op.f("ix_jobs_created_at"), "jobs", ["created_at"])
    op.create_index(op.f("ix_jobs_ended_at"), "jobs", ["ended_at"])
    op.create_index(op.f("ix_jobs_job_id"), "jobs", ["job_id"])
    op.create_index(op.f("ix_jobs_raw_job_id"), "jobs", ["raw_job_id"])
    op.create_index(op.f("ix_jobs_settled"), "jobs", ["settled"])
    op.create_table(
        "attempts",
        sa.Column("job_row", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("raw_state", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("exit_signal", sa.Integer(), nullable=True),
        sa.Column("node_list", sa.Text(), nullable=True),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_row"], ["jobs.row"], name=op.f("fk_attempts_job_row_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_row", "number", name=op.f("pk_attempts")),
    )
    op.create_table(
        "job_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_row", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=True),
        sa.Column("raw_state", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_row"], ["jobs.row"], name=op.f("fk_job_events_job_row_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_job_events_job_row"), "job_events", ["job_row"])
    op.create_table(
        "log_cursors",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_row", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("inode", sa.Text(), nullable=False),
        sa.Column("offset_bytes", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("carry", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_row"], ["jobs.row"], name=op.f("fk_log_cursors_job_row_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_cursors")),
        sa.UniqueConstraint("job_row", "path", name=op.f("uq_log_cursors_job_row_path")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "metrics",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_row", sa.Integer(), nullable=False),
        sa.Column("identity", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=True),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("world_size", sa.BigInteger(), nullable=True),
        sa.Column("time", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("log_id", sa.Integer(), nullable=True),
        sa.Column("line", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_row"], ["jobs.row"], name=op.f("fk_metrics_job_row_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metrics")),
        sa.UniqueConstraint("job_row", "identity", name=op.f("uq_metrics_job_row_identity")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_metrics_series", "metrics", ["job_row", "name", "source", "attempt", "step"]
    )
