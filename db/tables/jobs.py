"""Tables of submissions, jobs and their history."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables import column_types
from db.tables.columns import index, key, optional, reference, required, table

#: Facts about this installation, such as `installation_id`.
SETTINGS = table(
    "settings",
    sa.Column("key", column_types.TEXT, primary_key=True),
    *required(column_types.TEXT, "value"),
)

#: One intended sbatch each.
SUBMISSIONS = table(
    "submissions",
    key("id"),
    *required(column_types.TEXT, "token", "cluster", "name", "run_dir", "script"),
    *required(column_types.SCHEDULER, "scheduler"),
    *required(column_types.TIME, "created_at"),
    # Hash of the request to the local runner. NULL: a Slurm job, or a version before 0009.
    *optional(column_types.TEXT, "request_sha256"),
    *required(column_types.DOCUMENT, "spec", "provenance"),
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
    *required(column_types.COUNT, "array_task", "attempt", "restart_count", "misses"),
    # The version grows with each change, so that a change made from an older view is refused.
    *required(column_types.COUNT, "version"),
    sa.Column("refusals", column_types.COUNT, nullable=False, server_default=sa.text("0")),
    *required(column_types.STATE, "state"),
    *required(column_types.FLAG, "settled"),
    *required(column_types.TIME, "created_at"),
    *optional(
        column_types.TEXT, "job_id", "raw_job_id", "array_job_id", "raw_state", "reason", "cause"
    ),
    *optional(column_types.TEXT, "partition", "account", "qos", "node_list", "sweep"),
    *optional(
        column_types.TEXT, "stdout_path", "stderr_path", "submitter_host", "submitter_boot_id"
    ),
    # The whole name in Slurm of a job that orchestrator did not submit. NULL: NAME.TOKEN.
    *optional(column_types.TEXT, "tracked_name"),
    *optional(column_types.COUNT, "array_task_id", "nodes", "gpus", "cpus", "submitter_pid"),
    *optional(column_types.WHOLE, "exit_code", "exit_signal"),
    *optional(column_types.large(0, column_types.MAX_SECONDS), "time_limit_seconds"),
    *optional(column_types.LARGE, "submitter_start_ticks"),
    *optional(column_types.TIME, "submitted_at", "started_at", "ended_at", "observed_at"),
    *optional(column_types.TIME, "missing_since", "grace_since"),
    # When a submission that Slurm does not have is sent again.
    *optional(column_types.TIME, "resend_at"),
    *required(column_types.TEXTS, "labels"),
    *optional(column_types.ALERTS, "alerts"),
    # Row of the job that this one continues. For a foreign key SQLite would copy the table.
    *optional(column_types.WHOLE, "continues"),
    # Its [retry] still has to decide what follows its end; else NULL.
    *optional(column_types.FLAG, "recovers"),
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
    *required(column_types.COUNT, "number"),
    *required(column_types.STATE, "state"),
    *optional(column_types.TEXT, "raw_state", "reason", "node_list"),
    *optional(column_types.WHOLE, "exit_code", "exit_signal"),
    *optional(column_types.TIME, "submitted_at", "started_at", "ended_at"),
    sa.PrimaryKeyConstraint("job_row", "number"),
)

#: What a settled attempt used, as JSON: neither Slurm nor the GPU files are read again for it.
USED_FIGURES = table(
    "used_figures",
    reference("job_row", "jobs.row", with_parent=True),
    *required(column_types.COUNT, "attempt"),
    *required(column_types.DOCUMENT, "figures"),
    sa.PrimaryKeyConstraint("job_row", "attempt"),
)

#: An environment that attempts share: Python, packages, driver and so on, as JSON.
ENVIRONMENTS = table(
    "environments",
    key("id"),
    # Of the document, by which an equal environment is found.
    *required(column_types.TEXT, "sha256"),
    *required(column_types.DOCUMENT, "document"),
    sa.UniqueConstraint("sha256"),
)

#: The environment of an attempt, read once from its run folder, and where the attempt ran.
ATTEMPT_ENVIRONMENTS = table(
    "attempt_environments",
    reference("job_row", "jobs.row", with_parent=True),
    *required(column_types.COUNT, "attempt"),
    # NULL: nothing was recorded, and the run folder is not read again.
    reference("environment_id", "environments.id", optional=True),
    *required(column_types.DOCUMENT, "placement"),
    sa.PrimaryKeyConstraint("job_row", "attempt"),
    index("environment_id"),
)

#: What was observed or done; rows are only added.
JOB_EVENTS = table(
    "job_events",
    key("id", column_types.LARGE_KEY),
    reference("job_row", "jobs.row", with_parent=True),
    *required(column_types.TIME, "at"),
    *required(column_types.TEXT, "kind", "source", "detail"),
    *required(column_types.COUNT, "attempt"),
    *optional(column_types.STATE, "state"),
    *optional(column_types.TEXT, "raw_state"),
    index("job_row"),
    numbered=True,
)

#: A job starts after another job, or all jobs of a sweep, ended.
DEPENDENCIES = table(
    "dependencies",
    key("id"),
    reference("job_row", "jobs.row", with_parent=True),
    *required(column_types.word("afterok", "afterany", "afternotok"), "kind"),
    reference("on_job", "jobs.row", optional=True),
    reference("on_sweep", "sweeps.id", optional=True),
    # Row of the newest continuation job that the dependency in Slurm names: `continuation`.
    *optional(column_types.WHOLE, "turned_to"),
    *(index(name) for name in ("job_row", "on_job", "on_sweep")),
)

#: When Slurm last answered for a cluster, and which process queries it now.
REFRESHES = table(
    "refreshes",
    sa.Column("cluster", column_types.TEXT, primary_key=True),
    *optional(column_types.TIME, "last_good_squeue_at", "last_good_sacct_at", "last_tried_at"),
    *optional(column_types.TIME, "failing_since", "claimed_until"),
    *optional(column_types.TEXT, "last_error", "holder"),
)
