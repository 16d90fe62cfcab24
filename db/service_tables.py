"""The tables of the service: who acts, what is planned, what was decided, what is to be told."""

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from db import columns, models, vocabulary


class Lease(models.Base):
    """Who acts as the controller; one row a name, kept when it is given back."""

    __tablename__ = "leases"

    #: controller
    name: orm.Mapped[str] = orm.mapped_column(primary_key=True)
    #: grows with each new holder: what an earlier one still writes is refused
    fence: orm.Mapped[int] = orm.mapped_column(columns.Large(0))
    #: the holding process as of jobs.Submitter; NULL: nobody
    host: orm.Mapped[str | None]
    boot_id: orm.Mapped[str | None]
    pid: orm.Mapped[int | None]
    start_ticks: orm.Mapped[int | None] = orm.mapped_column(columns.Large(0))
    #: serve or tick
    command: orm.Mapped[str | None]
    since: orm.Mapped[datetime.datetime | None]
    renewed_at: orm.Mapped[datetime.datetime | None]
    #: grows with each renewal, so that who watches needs no clock of another host
    renewals: orm.Mapped[int] = orm.mapped_column(columns.Large(0))
    #: it may be taken over when it was not renewed for so long
    seconds: orm.Mapped[float]


class Schedule(models.Base):
    """A job or sweep that is submitted at planned times. The long texts stand last."""

    __tablename__ = "schedules"
    __table_args__ = (sa.Index(None, "name"), {"sqlite_autoincrement": True})

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str]
    #: active, paused or removed
    state: orm.Mapped[str] = orm.mapped_column(columns.Word("active", "paused", "removed"))
    cron: orm.Mapped[str]
    #: IANA name
    tz: orm.Mapped[str]
    #: job or sweep
    kind: orm.Mapped[str] = orm.mapped_column(columns.Word("job", "sweep"))
    #: the file that it was read from
    source: orm.Mapped[str]
    #: where it was added; what it submits is submitted there
    folder: orm.Mapped[str]
    profile: orm.Mapped[str]
    #: it fires on this cluster, or this machine, alone
    cluster: orm.Mapped[str]
    #: slurm or local
    scheduler: orm.Mapped[str] = orm.mapped_column(vocabulary.SCHEDULER)
    #: latest, skip or all
    catchup: orm.Mapped[str] = orm.mapped_column(columns.Word("latest", "skip", "all"))
    grace_seconds: orm.Mapped[int] = orm.mapped_column(columns.Large(0, vocabulary.MOST_SECONDS))
    #: skip, queue or allow
    overlap: orm.Mapped[str] = orm.mapped_column(columns.Word("skip", "queue", "allow"))
    jitter_seconds: orm.Mapped[int] = orm.mapped_column(columns.Large(0, vocabulary.MOST_SECONDS))
    #: name of the baseline that its sweeps are held to; NULL: to those before
    baseline: orm.Mapped[str | None]
    #: when it was added, or taken anew by --replace: its history begins here
    created_at: orm.Mapped[datetime.datetime]
    #: planned times up to this one have their firing
    decided_until: orm.Mapped[datetime.datetime]
    #: grows with each change
    version: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    #: of the file as it was read, SHA-256; NULL: there is none
    source_hash: orm.Mapped[str | None]
    #: JSON of the command line
    argv: orm.Mapped[str] = orm.mapped_column(columns.Document(list))
    #: JSON: of a sweep the file's keys with those of the command line, else the job's spec
    spec: orm.Mapped[str] = orm.mapped_column(columns.Document(), deferred=True)
    #: JSON of the variables that its jobs get, those of the shell where it was added
    environment: orm.Mapped[str] = orm.mapped_column(columns.Document(), deferred=True)


class Firing(models.Base):
    """One planned time of a schedule and what became of it."""

    __tablename__ = "firings"
    __table_args__ = (
        # Whoever decides twice is refused here.
        sa.UniqueConstraint("schedule_id", "planned_at"),
        # What waits, and what fired and has no verdict: few among very many.
        sa.Index(None, "state", "verdict_at"),
        sa.Index(None, "job_row"),
        sa.Index(None, "sweep_id"),
        {"sqlite_autoincrement": True},
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    schedule_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey("schedules.id", ondelete="CASCADE")
    )
    planned_at: orm.Mapped[datetime.datetime]
    #: planned_at and its jitter
    due_at: orm.Mapped[datetime.datetime]
    #: asked for by `schedule run`
    by_hand: orm.Mapped[bool]
    #: waiting, fired, skipped or failed
    state: orm.Mapped[str] = orm.mapped_column(
        columns.Word("waiting", "fired", "skipped", "failed")
    )
    reason: orm.Mapped[str | None]
    decided_at: orm.Mapped[datetime.datetime]
    sweep_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("sweeps.id"))
    job_row: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("jobs.row"))
    #: of what it submitted, once that has ended: ok, regression, ...
    verdict: orm.Mapped[str | None]
    #: JSON
    verdict_detail: orm.Mapped[str | None] = orm.mapped_column(columns.Document())
    verdict_at: orm.Mapped[datetime.datetime | None]


class Recovery(models.Base):
    """What was decided about one failed attempt of a job, and what came of it."""

    __tablename__ = "recoveries"
    __table_args__ = (
        sa.UniqueConstraint("job_row", "attempt"),
        sa.Index(None, "state"),
        {"sqlite_autoincrement": True},
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    job_row: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("jobs.row", ondelete="CASCADE"))
    attempt: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    cause: orm.Mapped[str]
    #: what the decision follows
    rule: orm.Mapped[str]
    #: requeue, continue or none
    action: orm.Mapped[str] = orm.mapped_column(columns.Word("requeue", "continue", "none"))
    #: planned, done or refused
    state: orm.Mapped[str] = orm.mapped_column(columns.Word("planned", "done", "refused"))
    #: a plain sentence: why
    detail: orm.Mapped[str]
    decided_at: orm.Mapped[datetime.datetime]
    #: when it is done at the earliest
    due_at: orm.Mapped[datetime.datetime | None]
    #: the job that goes on
    next_job_row: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("jobs.row"))
    #: how far the attempt came; NULL: not known
    step: orm.Mapped[int | None] = orm.mapped_column(columns.Large())
    #: JSON of what is changed: spec's keys, nodes left out
    changes: orm.Mapped[str | None] = orm.mapped_column(columns.Document())


class Dependency(models.Base):
    """A job starts after another job, or all jobs of a sweep, ended."""

    __tablename__ = "dependencies"
    __table_args__ = (
        sa.Index(None, "job_row"),
        sa.Index(None, "on_job"),
        sa.Index(None, "on_sweep"),
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    job_row: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("jobs.row", ondelete="CASCADE"))
    #: afterok, afterany or afternotok
    kind: orm.Mapped[str] = orm.mapped_column(columns.Word("afterok", "afterany", "afternotok"))
    on_job: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("jobs.row"))
    on_sweep: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("sweeps.id"))
    #: the newest job that goes on where one of those ended, and that Slurm was told to wait for
    turned_to: orm.Mapped[int | None]


class Graph(models.Base):
    """Jobs and sweeps that were submitted together and depend on each other."""

    __tablename__ = "graphs"
    __table_args__ = (sa.Index(None, "name"), {"sqlite_autoincrement": True})

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str]
    #: open or cancelled
    state: orm.Mapped[str] = orm.mapped_column(columns.Word("open", "cancelled"))
    source: orm.Mapped[str]
    folder: orm.Mapped[str]
    profile: orm.Mapped[str]
    #: slurm or local, and the name of the cluster
    scheduler: orm.Mapped[str] = orm.mapped_column(vocabulary.SCHEDULER)
    cluster: orm.Mapped[str]
    created_at: orm.Mapped[datetime.datetime]
    #: JSON of the command line
    argv: orm.Mapped[str] = orm.mapped_column(columns.Document(list))
    #: JSON of the variables that its jobs get, those of the shell where it was submitted
    environment: orm.Mapped[str] = orm.mapped_column(columns.Document(), deferred=True)


class GraphNode(models.Base):
    """One job or sweep of a graph."""

    __tablename__ = "graph_nodes"
    __table_args__ = (sa.PrimaryKeyConstraint("graph_id", "name"),)

    graph_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("graphs.id", ondelete="CASCADE"))
    name: orm.Mapped[str]
    #: from 1, each after those that it waits for
    place: orm.Mapped[int] = orm.mapped_column(columns.Whole(1))
    #: job or sweep
    kind: orm.Mapped[str] = orm.mapped_column(columns.Word("job", "sweep"))
    #: JSON list of [kind of dependency, node]
    after: orm.Mapped[str] = orm.mapped_column(columns.Document(list))
    #: NULL while nothing was submitted of it
    job_row: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("jobs.row"))
    sweep_id: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("sweeps.id"))
    #: the file that it was read from
    source: orm.Mapped[str]
    #: why it is not submitted, and will not be by itself; NULL: it may be
    given_up: orm.Mapped[str | None]
    #: JSON: of a sweep the file's keys, else the job's spec
    spec: orm.Mapped[str] = orm.mapped_column(columns.Document(), deferred=True)


class Notice(models.Base):
    """Something that people are told once."""

    __tablename__ = "notices"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    #: names what happened, so that it is told once: "end:@7:0"
    key: orm.Mapped[str] = orm.mapped_column(unique=True)
    #: end, failure, regression, stall, missed
    kind: orm.Mapped[str]
    created_at: orm.Mapped[datetime.datetime]
    subject: orm.Mapped[str]
    body: orm.Mapped[str]
    job_row: orm.Mapped[int | None]
    sweep_id: orm.Mapped[int | None]
    schedule_id: orm.Mapped[int | None]


class Delivery(models.Base):
    """A notice on its way to one receiver."""

    __tablename__ = "deliveries"
    __table_args__ = (
        sa.PrimaryKeyConstraint("notice_id", "channel"),
        sa.Index(None, "state", "next_at"),
    )

    notice_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("notices.id", ondelete="CASCADE"))
    #: its name in the configuration
    channel: orm.Mapped[str]
    #: waiting, sending, sent or failed
    state: orm.Mapped[str] = orm.mapped_column(columns.Word("waiting", "sending", "sent", "failed"))
    tries: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    next_at: orm.Mapped[datetime.datetime]
    sent_at: orm.Mapped[datetime.datetime | None]
    error: orm.Mapped[str | None]


#: All tables: those of `models` and these.
METADATA = models.Base.metadata
