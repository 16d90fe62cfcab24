"""Tables of the controller: its lease, schedules, recovery, graphs and notices."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables.base import (
    COUNT,
    MOST_SECONDS,
    SCHEDULER,
    TEXT,
    index,
    key,
    optional,
    reference,
    required,
    table,
)
from db.tables.column_types import Document, Flag, Large, Real, UtcDateTime, Whole, Word

#: Which process acts as the controller. The row stays when the lease is given back.
LEASES = table(
    "leases",
    sa.Column("name", TEXT, primary_key=True),
    # The fence grows with each new holder: what an earlier one still writes is refused. The
    # renewals grow with each renewal, so that an observer needs no clock of another host.
    *required(Large(0), "fence", "renewals"),
    # The process that holds it, as in jobs.Submitter; NULL: none. Its command: serve or tick.
    *optional(TEXT, "host", "boot_id", "command"),
    *optional(Whole(), "pid"),
    *optional(Large(0), "start_ticks"),
    *optional(UtcDateTime(), "since", "renewed_at"),
    # Without a renewal for so long another process may take it over.
    *required(Real(), "seconds"),
)

SCHEDULES = table(
    "schedules",
    key("id"),
    # The zone `tz` is an IANA name; `source` is the spec file.
    *required(TEXT, "name", "cron", "tz", "source"),
    # Where it was added, and where it submits.
    *required(TEXT, "folder", "profile", "cluster"),
    *required(SCHEDULER, "scheduler"),
    *required(Word("active", "paused", "removed"), "state"),
    *required(Word("job", "sweep"), "kind"),
    *required(Word("latest", "skip", "all"), "catchup"),
    *required(Word("skip", "queue", "allow"), "overlap"),
    *required(Large(0, MOST_SECONDS), "grace_seconds", "jitter_seconds"),
    # Its sweeps are compared with this baseline; NULL: with earlier sweeps.
    *optional(TEXT, "baseline"),
    # When it was added or replaced: its history starts here.
    *required(UtcDateTime(), "created_at"),
    # Planned times up to this one have their triggers.
    *required(UtcDateTime(), "decided_until"),
    *required(COUNT, "version"),
    # SHA-256 of the spec file; NULL: there is none.
    *optional(TEXT, "source_hash"),
    *required(Document(list), "argv"),
    # For a sweep the keys of the file with those of the command line, else the spec of the job.
    *required(Document(), "spec"),
    # The environment variables of its jobs: those of the shell where it was added.
    *required(Document(), "environment"),
    index("name"),
    numbered=True,
)

#: The triggers of schedules: planned times, and what followed.
FIRINGS = table(
    "firings",
    key("id"),
    reference("schedule_id", "schedules.id", with_parent=True),
    # The trigger is due at its planned time plus the jitter.
    *required(UtcDateTime(), "planned_at", "due_at", "decided_at"),
    # Requested by `schedule run`.
    *required(Flag(), "by_hand"),
    *required(Word("waiting", "fired", "skipped", "failed"), "state"),
    *optional(TEXT, "reason"),
    reference("sweep_id", "sweeps.id", optional=True),
    reference("job_row", "jobs.row", optional=True),
    # Result of the regression check after the end of its jobs: ok, regression, ...
    *optional(TEXT, "verdict"),
    *optional(Document(), "verdict_detail"),
    *optional(UtcDateTime(), "verdict_at"),
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
    *required(COUNT, "attempt"),
    *required(TEXT, "cause", "rule", "detail"),
    *required(Word("requeue", "continue", "none"), "action"),
    *required(Word("planned", "done", "refused"), "state"),
    *required(UtcDateTime(), "decided_at"),
    *optional(UtcDateTime(), "due_at"),
    # The continuation job.
    reference("next_job_row", "jobs.row", optional=True),
    # The last step of the attempt; NULL: unknown.
    *optional(Large(), "step"),
    # The changes: keys of the spec, excluded nodes.
    *optional(Document(), "changes"),
    sa.UniqueConstraint("job_row", "attempt"),
    index("state"),
    numbered=True,
)

#: Jobs and sweeps that were submitted together and depend on each other.
GRAPHS = table(
    "graphs",
    key("id"),
    *required(TEXT, "name", "source", "folder", "profile", "cluster"),
    *required(Word("open", "cancelled"), "state"),
    *required(SCHEDULER, "scheduler"),
    *required(UtcDateTime(), "created_at"),
    *required(Document(list), "argv"),
    # The environment variables of its jobs.
    *required(Document(), "environment"),
    index("name"),
    numbered=True,
)

#: A job or sweep of a graph.
GRAPH_NODES = table(
    "graph_nodes",
    reference("graph_id", "graphs.id", with_parent=True),
    *required(TEXT, "name", "source"),
    # From 1, each after the nodes that it depends on.
    *required(Whole(1), "place"),
    *required(Word("job", "sweep"), "kind"),
    # Pairs [kind of dependency, node].
    *required(Document(list), "after"),
    # NULL before it is submitted.
    reference("job_row", "jobs.row", optional=True),
    reference("sweep_id", "sweeps.id", optional=True),
    # Why it is not submitted; NULL: it may be.
    *optional(TEXT, "given_up"),
    # For a sweep the keys of the file, else the spec of the job.
    *required(Document(), "spec"),
    sa.PrimaryKeyConstraint("graph_id", "name"),
)

NOTICES = table(
    "notices",
    key("id"),
    # Names what happened, so that it is reported once: "end:@7:0".
    sa.Column("key", TEXT, nullable=False, unique=True),
    # The kind: end, failure, regression, stall, missed.
    *required(TEXT, "kind", "subject", "body"),
    *required(UtcDateTime(), "created_at"),
    *optional(Whole(), "job_row", "sweep_id", "schedule_id"),
    numbered=True,
)

#: A notice for one receiver.
DELIVERIES = table(
    "deliveries",
    reference("notice_id", "notices.id", with_parent=True),
    # Its name in the configuration.
    *required(TEXT, "channel"),
    *required(Word("waiting", "sending", "sent", "failed"), "state"),
    *required(COUNT, "tries"),
    *required(UtcDateTime(), "next_at"),
    *optional(UtcDateTime(), "sent_at"),
    *optional(TEXT, "error"),
    sa.PrimaryKeyConstraint("notice_id", "channel"),
    index("state", "next_at"),
)
