"""Tables of submissions, jobs and their history."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables import kinds
from db.tables.columns import index, key, optional, reference, required, table

#: Facts about this installation, such as `installation_id`.
SETTINGS = table(
    "settings",
    sa.Column("key", kinds.TEXT, primary_key=True),
    *required(kinds.TEXT, "value"),
)

#: One intended sbatch each.
SUBMISSIONS = table(
    "submissions",
    key("id"),
    *required(kinds.TEXT, "token", "cluster", "name", "run_dir", "script"),
    *required(kinds.SCHEDULER, "scheduler"),
    *required(kinds.TIME, "created_at"),
    # Hash of the request to the local runner. NULL: a Slurm job, or a version before 0009.
    *optional(kinds.TEXT, "request_sha256"),
    *required(kinds.DOCUMENT, "spec", "provenance"),
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
    *required(kinds.COUNT, "array_task", "attempt", "restart_count", "misses"),
    # The version grows with each change, so that a change made from an older view is refused.
    *required(kinds.COUNT, "version"),
    sa.Column("refusals", kinds.COUNT, nullable=False, server_default=sa.text("0")),
    *required(kinds.STATE, "state"),
    *required(kinds.FLAG, "settled"),
    *required(kinds.TIME, "created_at"),
    *optional(kinds.TEXT, "job_id", "raw_job_id", "array_job_id", "raw_state", "reason", "cause"),
    *optional(kinds.TEXT, "partition", "account", "qos", "node_list", "sweep"),
    *optional(kinds.TEXT, "stdout_path", "stderr_path", "submitter_host", "submitter_boot_id"),
    # The whole name in Slurm of a job that orchestrator did not submit. NULL: NAME.TOKEN.
    *optional(kinds.TEXT, "tracked_name"),
    *optional(kinds.COUNT, "array_task_id", "nodes", "gpus", "cpus", "submitter_pid"),
    *optional(kinds.WHOLE, "exit_code", "exit_signal"),
    *optional(kinds.large(0, kinds.MOST_SECONDS), "time_limit_seconds"),
    *optional(kinds.LARGE, "submitter_start_ticks"),
    *optional(kinds.TIME, "submitted_at", "started_at", "ended_at", "observed_at"),
    *optional(kinds.TIME, "missing_since", "grace_since"),
    # When a submission that Slurm does not have is sent again.
    *optional(kinds.TIME, "resend_at"),
    *required(kinds.TEXTS, "labels"),
    *optional(kinds.ALERTS, "alerts"),
    # Row of the job that this one continues. For a foreign key SQLite would copy the table.
    *optional(kinds.WHOLE, "continues"),
    # Its [retry] still has to decide what follows its end; else NULL.
    *optional(kinds.FLAG, "recovers"),
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
    *required(kinds.COUNT, "number"),
    *required(kinds.STATE, "state"),
    *optional(kinds.TEXT, "raw_state", "reason", "node_list"),
    *optional(kinds.WHOLE, "exit_code", "exit_signal"),
    *optional(kinds.TIME, "submitted_at", "started_at", "ended_at"),
    sa.PrimaryKeyConstraint("job_row", "number"),
)

#: What a settled attempt used, as JSON: neither Slurm nor the GPU files are read again for it.
USED_FIGURES = table(
    "used_figures",
    reference("job_row", "jobs.row", with_parent=True),
    *required(kinds.COUNT, "attempt"),
    *required(kinds.DOCUMENT, "figures"),
    sa.PrimaryKeyConstraint("job_row", "attempt"),
)

#: What was observed or done; rows are only added.
JOB_EVENTS = table(
    "job_events",
    key("id", kinds.LARGE_KEY),
    reference("job_row", "jobs.row", with_parent=True),
    *required(kinds.TIME, "at"),
    *required(kinds.TEXT, "kind", "source", "detail"),
    *required(kinds.COUNT, "attempt"),
    *optional(kinds.STATE, "state"),
    *optional(kinds.TEXT, "raw_state"),
    index("job_row"),
    numbered=True,
)

#: A job starts after another job, or all jobs of a sweep, ended.
DEPENDENCIES = table(
    "dependencies",
    key("id"),
    reference("job_row", "jobs.row", with_parent=True),
    *required(kinds.word("afterok", "afterany", "afternotok"), "kind"),
    reference("on_job", "jobs.row", optional=True),
    reference("on_sweep", "sweeps.id", optional=True),
    # Row of the newest continuation job that the dependency in Slurm names.
    *optional(kinds.WHOLE, "turned_to"),
    *(index(name) for name in ("job_row", "on_job", "on_sweep")),
)

#: When Slurm last answered for a cluster, and which process queries it now.
REFRESHES = table(
    "refreshes",
    sa.Column("cluster", kinds.TEXT, primary_key=True),
    *optional(kinds.TIME, "last_good_squeue_at", "last_good_sacct_at", "last_tried_at"),
    *optional(kinds.TIME, "failing_since", "claimed_until"),
    *optional(kinds.TEXT, "last_error", "holder"),
)
