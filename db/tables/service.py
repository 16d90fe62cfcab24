"""Tables of the controller: its lease, schedules, recovery, graphs and notices."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables import kinds
from db.tables.columns import index, key, optional, reference, required, table

#: Which process acts as the controller. The row stays when the lease is given back.
LEASES = table(
    "leases",
    sa.Column("name", kinds.TEXT, primary_key=True),
    # The fence grows with each new holder: what an earlier one still writes is refused. The
    # renewals grow with each renewal, so that an observer needs no clock of another host.
    *required(kinds.large(0), "fence", "renewals"),
    # The process that holds it, as in jobs.Submitter; NULL: none. Its command: serve or tick.
    *optional(kinds.TEXT, "host", "boot_id", "command"),
    *optional(kinds.WHOLE, "pid"),
    *optional(kinds.large(0), "start_ticks"),
    *optional(kinds.TIME, "since", "renewed_at"),
    # Without a renewal for so long another process may take it over.
    *required(kinds.REAL, "seconds"),
)

SCHEDULES = table(
    "schedules",
    key("id"),
    # The zone `tz` is an IANA name; `source` is the spec file.
    *required(kinds.TEXT, "name", "cron", "tz", "source"),
    # Where it was added, and where it submits.
    *required(kinds.TEXT, "folder", "profile", "cluster"),
    *required(kinds.SCHEDULER, "scheduler"),
    *required(kinds.word("active", "paused", "removed"), "state"),
    *required(kinds.word("job", "sweep"), "kind"),
    *required(kinds.word("latest", "skip", "all"), "catchup"),
    *required(kinds.word("skip", "queue", "allow"), "overlap"),
    *required(kinds.large(0, kinds.MOST_SECONDS), "grace_seconds", "jitter_seconds"),
    # Its sweeps are compared with this baseline; NULL: with earlier sweeps.
    *optional(kinds.TEXT, "baseline"),
    # When it was added or replaced: its history starts here.
    *required(kinds.TIME, "created_at"),
    # Planned times up to this one have their triggers.
    *required(kinds.TIME, "decided_until"),
    *required(kinds.COUNT, "version"),
    # SHA-256 of the spec file; NULL: there is none.
    *optional(kinds.TEXT, "source_hash"),
    *required(kinds.COMMAND, "argv"),
    # For a sweep the keys of the file with those of the command line, else the spec of the job.
    *required(kinds.JSON, "spec"),
    # The environment variables of its jobs: those of the shell where it was added.
    *required(kinds.VARIABLES, "environment"),
    index("name"),
    numbered=True,
)

#: The triggers of schedules: planned times, and what followed.
FIRINGS = table(
    "firings",
    key("id"),
    reference("schedule_id", "schedules.id", with_parent=True),
    # The trigger is due at its planned time plus the jitter.
    *required(kinds.TIME, "planned_at", "due_at", "decided_at"),
    # Requested by `schedule run`.
    *required(kinds.FLAG, "by_hand"),
    *required(kinds.word("waiting", "fired", "skipped", "failed"), "state"),
    *optional(kinds.TEXT, "reason"),
    reference("sweep_id", "sweeps.id", optional=True),
    reference("job_row", "jobs.row", optional=True),
    # Result of the regression check after the end of its jobs: ok, regression, ...
    *optional(kinds.TEXT, "verdict"),
    *optional(kinds.JSON, "verdict_detail"),
    *optional(kinds.TIME, "verdict_at"),
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
    *required(kinds.COUNT, "attempt"),
    *required(kinds.TEXT, "cause", "rule", "detail"),
    *required(kinds.word("requeue", "continue", "none"), "action"),
    *required(kinds.word("planned", "done", "refused"), "state"),
    *required(kinds.TIME, "decided_at"),
    *optional(kinds.TIME, "due_at"),
    # The continuation job.
    reference("next_job_row", "jobs.row", optional=True),
    # The last step of the attempt; NULL: unknown.
    *optional(kinds.LARGE, "step"),
    # The changes: keys of the spec, excluded nodes.
    *optional(kinds.ARGUMENTS, "changes"),
    sa.UniqueConstraint("job_row", "attempt"),
    index("state"),
    numbered=True,
)

#: Jobs and sweeps that were submitted together and depend on each other.
GRAPHS = table(
    "graphs",
    key("id"),
    *required(kinds.TEXT, "name", "source", "folder", "profile", "cluster"),
    *required(kinds.word("open", "cancelled"), "state"),
    *required(kinds.SCHEDULER, "scheduler"),
    *required(kinds.TIME, "created_at"),
    *required(kinds.COMMAND, "argv"),
    # The environment variables of its jobs.
    *required(kinds.VARIABLES, "environment"),
    index("name"),
    numbered=True,
)

#: A job or sweep of a graph.
GRAPH_NODES = table(
    "graph_nodes",
    reference("graph_id", "graphs.id", with_parent=True),
    *required(kinds.TEXT, "name", "source"),
    # From 1, each after the nodes that it depends on.
    *required(kinds.whole(1), "place"),
    *required(kinds.word("job", "sweep"), "kind"),
    # Pairs [kind of dependency, node].
    *required(kinds.PAIRS, "after"),
    # NULL before it is submitted.
    reference("job_row", "jobs.row", optional=True),
    reference("sweep_id", "sweeps.id", optional=True),
    # Why it is not submitted; NULL: it may be.
    *optional(kinds.TEXT, "given_up"),
    # For a sweep the keys of the file, else the spec of the job.
    *required(kinds.JSON, "spec"),
    sa.PrimaryKeyConstraint("graph_id", "name"),
)

NOTICES = table(
    "notices",
    key("id"),
    # Names what happened, so that it is reported once: "end:@7:0".
    sa.Column("key", kinds.TEXT, nullable=False, unique=True),
    # The kind: end, failure, regression, stall, missed.
    *required(kinds.TEXT, "kind", "subject", "body"),
    *required(kinds.TIME, "created_at"),
    *optional(kinds.WHOLE, "job_row", "sweep_id", "schedule_id"),
    numbered=True,
)

#: A notice for one receiver.
DELIVERIES = table(
    "deliveries",
    reference("notice_id", "notices.id", with_parent=True),
    # Its name in the configuration.
    *required(kinds.TEXT, "channel"),
    *required(kinds.word("waiting", "sending", "sent", "failed"), "state"),
    *required(kinds.COUNT, "tries"),
    *required(kinds.TIME, "next_at"),
    *optional(kinds.TIME, "sent_at"),
    *optional(kinds.TEXT, "error"),
    sa.PrimaryKeyConstraint("notice_id", "channel"),
    index("state", "next_at"),
)
