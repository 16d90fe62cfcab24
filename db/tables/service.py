"""Tables of the controller: its lease, schedules, recovery, graphs and notices."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables import column_types
from db.tables.columns import index, key, optional, reference, required, table

#: Which process acts as the controller. The row stays when the lease is given back.
LEASES = table(
    "leases",
    sa.Column("name", column_types.TEXT, primary_key=True),
    # The fence grows with each new holder: what an earlier one still writes is refused. The
    # renewals grow with each renewal, so that an observer needs no clock of another host.
    *required(column_types.large(0), "fence", "renewals"),
    # The process that holds it, as in jobs.Submitter; NULL: none. Its command: serve or tick.
    *optional(column_types.TEXT, "host", "boot_id", "command"),
    *optional(column_types.WHOLE, "pid"),
    *optional(column_types.large(0), "start_ticks"),
    *optional(column_types.TIME, "since", "renewed_at"),
    # Without a renewal for so long another process may take it over.
    *required(column_types.REAL, "seconds"),
)

SCHEDULES = table(
    "schedules",
    key("id"),
    # The zone `tz` is an IANA name; `source` is the spec file.
    *required(column_types.TEXT, "name", "cron", "tz", "source"),
    # Where it was added, and where it submits.
    *required(column_types.TEXT, "folder", "profile", "cluster"),
    *required(column_types.SCHEDULER, "scheduler"),
    *required(column_types.word("active", "paused", "removed"), "state"),
    *required(column_types.word("job", "sweep"), "kind"),
    *required(column_types.word("latest", "skip", "all"), "catchup"),
    *required(column_types.word("skip", "queue", "allow"), "overlap"),
    *required(column_types.large(0, column_types.MAX_SECONDS), "grace_seconds", "jitter_seconds"),
    # Its sweeps are compared with this baseline; NULL: with earlier sweeps.
    *optional(column_types.TEXT, "baseline"),
    # When it was added or replaced: its history starts here.
    *required(column_types.TIME, "created_at"),
    # Planned times up to this one have their triggers.
    *required(column_types.TIME, "decided_until"),
    *required(column_types.COUNT, "version"),
    # SHA-256 of the spec file; NULL: there is none.
    *optional(column_types.TEXT, "source_hash"),
    *required(column_types.COMMAND, "argv"),
    # For a sweep the keys of the file with those of the command line, else the spec of the job.
    *required(column_types.JSON, "spec"),
    # The environment variables of its jobs: those of the shell where it was added.
    *required(column_types.VARIABLES, "environment"),
    index("name"),
    numbered=True,
)

#: The triggers of schedules: planned times, and what followed. The table keeps its earlier name,
#: because another one is not worth a migration.
TRIGGERS = table(
    "firings",
    key("id"),
    reference("schedule_id", "schedules.id", with_parent=True),
    # The trigger is due at its planned time plus the jitter.
    *required(column_types.TIME, "planned_at", "due_at", "decided_at"),
    # Requested by `schedule run`.
    *required(column_types.FLAG, "by_hand"),
    *required(column_types.word("waiting", "fired", "skipped", "failed"), "state"),
    *optional(column_types.TEXT, "reason"),
    reference("sweep_id", "sweeps.id", optional=True),
    reference("job_row", "jobs.row", optional=True),
    # Result of the regression check after the end of its jobs: ok, regression, ...
    *optional(column_types.TEXT, "verdict"),
    *optional(column_types.JSON, "verdict_detail"),
    *optional(column_types.TIME, "verdict_at"),
    # Refuses a second decision about a planned time.
    sa.UniqueConstraint("schedule_id", "planned_at"),
    # Finds the few that are pending, or fired and not checked yet.
    index("state", "verdict_at"),
    index("job_row"),
    index("sweep_id"),
    numbered=True,
)

#: Decisions about failed attempts, and their outcomes.
RECOVERIES = table(
    "recoveries",
    key("id"),
    reference("job_row", "jobs.row", with_parent=True),
    *required(column_types.COUNT, "attempt"),
    *required(column_types.TEXT, "cause", "rule", "detail"),
    *required(column_types.word("requeue", "continue", "none"), "action"),
    *required(column_types.word("planned", "done", "refused"), "state"),
    *required(column_types.TIME, "decided_at"),
    *optional(column_types.TIME, "due_at"),
    # The continuation job.
    reference("next_job_row", "jobs.row", optional=True),
    # The last step of the attempt; NULL: unknown.
    *optional(column_types.LARGE, "step"),
    # The changes: keys of the spec, excluded nodes.
    *optional(column_types.ARGUMENTS, "changes"),
    sa.UniqueConstraint("job_row", "attempt"),
    index("state"),
    numbered=True,
)

#: Jobs and sweeps that were submitted together and depend on each other.
GRAPHS = table(
    "graphs",
    key("id"),
    *required(column_types.TEXT, "name", "source", "folder", "profile", "cluster"),
    *required(column_types.word("open", "cancelled"), "state"),
    *required(column_types.SCHEDULER, "scheduler"),
    *required(column_types.TIME, "created_at"),
    *required(column_types.COMMAND, "argv"),
    # The environment variables of its jobs.
    *required(column_types.VARIABLES, "environment"),
    index("name"),
    numbered=True,
)

#: A job or sweep of a graph.
GRAPH_NODES = table(
    "graph_nodes",
    reference("graph_id", "graphs.id", with_parent=True),
    *required(column_types.TEXT, "name", "source"),
    # From 1, each after the nodes that it depends on.
    *required(column_types.whole(1), "place"),
    *required(column_types.word("job", "sweep"), "kind"),
    # Pairs [kind of dependency, node].
    *required(column_types.PAIRS, "after"),
    # NULL before it is submitted.
    reference("job_row", "jobs.row", optional=True),
    reference("sweep_id", "sweeps.id", optional=True),
    # Why it is not submitted; NULL: it may be.
    *optional(column_types.TEXT, "given_up"),
    # For a sweep the keys of the file, else the spec of the job.
    *required(column_types.JSON, "spec"),
    sa.PrimaryKeyConstraint("graph_id", "name"),
)

NOTICES = table(
    "notices",
    key("id"),
    # Names what happened, so that it is reported once: "end:@7:0".
    sa.Column("key", column_types.TEXT, nullable=False, unique=True),
    # The kind: end, failure, regression, stall, missed.
    *required(column_types.TEXT, "kind", "subject", "body"),
    *required(column_types.TIME, "created_at"),
    *optional(column_types.WHOLE, "job_row", "sweep_id", "schedule_id"),
    numbered=True,
)

#: A notice for one receiver.
DELIVERIES = table(
    "deliveries",
    reference("notice_id", "notices.id", with_parent=True),
    # Its name in the configuration.
    *required(column_types.TEXT, "channel"),
    *required(column_types.word("waiting", "sending", "sent", "failed"), "state"),
    *required(column_types.COUNT, "tries"),
    *required(column_types.TIME, "next_at"),
    *optional(column_types.TIME, "sent_at"),
    *optional(column_types.TEXT, "error"),
    sa.PrimaryKeyConstraint("notice_id", "channel"),
    index("state", "next_at"),
)

#: What `apply` may do, once (orchestrator.plans.Plan).
PLANS = table(
    "plans",
    key("id"),
    *required(column_types.TEXT, "token"),
    *required(column_types.COMMAND, "argv"),
    *required(column_types.TEXT, "folder"),
    *required(column_types.COUNT, "jobs"),
    # NULL: unknown, as for a job without a time limit.
    *optional(column_types.REAL, "gpu_hours"),
    # What the plan follows from, by name.
    *required(column_types.VARIABLES, "basis"),
    *required(column_types.TIME, "created_at", "expires_at"),
    *optional(column_types.TIME, "applied_at"),
    sa.UniqueConstraint("token"),
    # Finds the plans of the last day.
    index("applied_at"),
    numbered=True,
)
