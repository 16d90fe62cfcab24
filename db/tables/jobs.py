"""Tables of submissions, jobs and their history."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables.base import (
    COUNT,
    MOST_SECONDS,
    SCHEDULER,
    STATE,
    TEXT,
    index,
    key,
    optional,
    reference,
    required,
    table,
)
from db.tables.column_types import Document, Flag, Key, Large, UtcDateTime, Whole, Word

#: Facts about this installation, such as `installation_id`.
SETTINGS = table(
    "settings",
    sa.Column("key", TEXT, primary_key=True),
    *required(TEXT, "value"),
)

#: One intended sbatch each.
SUBMISSIONS = table(
    "submissions",
    key("id"),
    *required(TEXT, "token", "cluster", "name", "run_dir", "script"),
    *required(SCHEDULER, "scheduler"),
    *required(UtcDateTime(), "created_at"),
    # Hash of the request to the local runner. NULL: a Slurm job, or a version before 0009.
    *optional(TEXT, "request_sha256"),
    *required(Document(), "spec", "provenance"),
    sa.UniqueConstraint("token"),
    index("name"),
    numbered=True,
)

#: The newest view of a job, or of one task of a job array. Numbered, so that `@7` always means the
#: same job.
JOBS = table(
    "jobs",
    key("row"),
    reference("submission_id", "submissions.id", with_parent=True),
    # 0 for a job that is no array.
    *required(COUNT, "array_task", "attempt", "restart_count", "misses"),
    # The version grows with each change, so that a change made from an older view is refused.
    *required(COUNT, "version"),
    sa.Column("refusals", COUNT, nullable=False, server_default=sa.text("0")),
    *required(STATE, "state"),
    *required(Flag(), "settled"),
    *required(UtcDateTime(), "created_at"),
    *optional(TEXT, "job_id", "raw_job_id", "array_job_id", "raw_state", "reason", "cause"),
    *optional(TEXT, "partition", "account", "qos", "node_list", "sweep"),
    *optional(TEXT, "stdout_path", "stderr_path", "submitter_host", "submitter_boot_id"),
    # The whole name in Slurm of a job that orchestrator did not submit. NULL: NAME.TOKEN.
    *optional(TEXT, "tracked_name"),
    *optional(COUNT, "array_task_id", "nodes", "gpus", "cpus", "submitter_pid"),
    *optional(Whole(), "exit_code", "exit_signal"),
    *optional(Large(0, MOST_SECONDS), "time_limit_seconds"),
    *optional(Large(), "submitter_start_ticks"),
    *optional(UtcDateTime(), "submitted_at", "started_at", "ended_at", "observed_at"),
    *optional(UtcDateTime(), "missing_since", "grace_since"),
    # When a submission that Slurm does not have is sent again.
    *optional(UtcDateTime(), "resend_at"),
    *required(Document(list), "labels"),
    *optional(Document(list), "alerts"),
    # Row of the job that this one continues. For a foreign key SQLite would copy the table.
    *optional(Whole(), "continues"),
    # Its [retry] still has to decide what follows its end; else NULL.
    *optional(Flag(), "recovers"),
    sa.UniqueConstraint("submission_id", "array_task"),
    *(index(name) for name in ("settled", "created_at", "ended_at", "resend_at")),
    *(index(name) for name in ("job_id", "raw_job_id", "array_job_id", "sweep", "continues")),
    index("recovers", "settled"),
    numbered=True,
)

#: One start of a job each.
ATTEMPTS = table(
    "attempts",
    reference("job_row", "jobs.row", with_parent=True),
    *required(COUNT, "number"),
    *required(STATE, "state"),
    *optional(TEXT, "raw_state", "reason", "node_list"),
    *optional(Whole(), "exit_code", "exit_signal"),
    *optional(UtcDateTime(), "submitted_at", "started_at", "ended_at"),
    sa.PrimaryKeyConstraint("job_row", "number"),
)

#: What a settled attempt used, as JSON: neither Slurm nor the GPU files are read again for it.
USED_FIGURES = table(
    "used_figures",
    reference("job_row", "jobs.row", with_parent=True),
    *required(COUNT, "attempt"),
    *required(Document(), "figures"),
    sa.PrimaryKeyConstraint("job_row", "attempt"),
)

#: What was observed or done; rows are only added.
JOB_EVENTS = table(
    "job_events",
    key("id", Key(1)),
    reference("job_row", "jobs.row", with_parent=True),
    *required(UtcDateTime(), "at"),
    *required(TEXT, "kind", "source", "detail"),
    *required(COUNT, "attempt"),
    *optional(STATE, "state"),
    *optional(TEXT, "raw_state"),
    index("job_row"),
    numbered=True,
)

#: A job starts after another job, or all jobs of a sweep, ended.
DEPENDENCIES = table(
    "dependencies",
    key("id"),
    reference("job_row", "jobs.row", with_parent=True),
    *required(Word("afterok", "afterany", "afternotok"), "kind"),
    reference("on_job", "jobs.row", optional=True),
    reference("on_sweep", "sweeps.id", optional=True),
    # Row of the newest continuation job that the dependency in Slurm names.
    *optional(Whole(), "turned_to"),
    *(index(name) for name in ("job_row", "on_job", "on_sweep")),
)

#: When Slurm last answered for a cluster, and which process queries it now.
REFRESHES = table(
    "refreshes",
    sa.Column("cluster", TEXT, primary_key=True),
    *optional(UtcDateTime(), "last_good_squeue_at", "last_good_sacct_at", "last_tried_at"),
    *optional(UtcDateTime(), "failing_since", "claimed_until"),
    *optional(TEXT, "last_error", "holder"),
)
