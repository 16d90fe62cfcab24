"""The tables. Types are those that SQLite and PostgreSQL share."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import columns, vocabulary

#: Constraint names are fixed, so that a migration can name what it changes on any database.
NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(orm.DeclarativeBase):
    """Parent of all tables."""

    metadata = sa.MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map = {  # noqa: RUF012  (read by SQLAlchemy, which declares it so)
        datetime.datetime: columns.UtcDateTime(),
        str: columns.Words(),
        int: columns.Whole(),
        float: columns.Real(),
        bool: columns.Flag(),
    }

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Each column knows its name, so that the error for a damaged value names it.
        for column in cls.__table__.c:
            if isinstance(column.type, columns.Checked):
                column.type = column.type.at(cls.__tablename__, column.name)


class Setting(Base):
    """A fact about this installation, `installation_id`."""

    __tablename__ = "settings"

    key: orm.Mapped[str] = orm.mapped_column(primary_key=True)
    value: orm.Mapped[str]


class Submission(Base):
    """One intended sbatch. The long texts stand last and are loaded only when asked for."""

    __tablename__ = "submissions"
    __table_args__ = (
        sa.UniqueConstraint("token"),
        sa.Index(None, "name"),
        {"sqlite_autoincrement": True},
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    token: orm.Mapped[str]
    cluster: orm.Mapped[str]
    scheduler: orm.Mapped[str] = orm.mapped_column(vocabulary.SCHEDULER)
    name: orm.Mapped[str]
    run_dir: orm.Mapped[str]
    created_at: orm.Mapped[datetime.datetime]
    #: of what the local runner was asked for; NULL: a job of Slurm's, or of a version before 0009
    request_sha256: orm.Mapped[str | None]
    script: orm.Mapped[str] = orm.mapped_column(deferred=True, deferred_group="texts")
    spec: orm.Mapped[str] = orm.mapped_column(
        columns.Document(), deferred=True, deferred_group="texts"
    )
    provenance: orm.Mapped[str] = orm.mapped_column(
        columns.Document(), deferred=True, deferred_group="texts"
    )


class Job(Base):
    """A job, or one task of a job array: the newest view."""

    __tablename__ = "jobs"
    __table_args__ = (
        sa.UniqueConstraint("submission_id", "array_task"),
        # What `status` shows unless asked: live, or begun or ended since yesterday.
        sa.Index(None, "settled"),
        sa.Index(None, "created_at"),
        sa.Index(None, "ended_at"),
        sa.Index(None, "resend_at"),
        *(sa.Index(None, name) for name in ("job_id", "raw_job_id", "array_job_id")),
        sa.Index(None, "sweep"),
        sa.Index(None, "continues"),
        sa.Index(None, "recovers", "settled"),
        # A row number is never given to another job, so `@7` means one job for ever.
        {"sqlite_autoincrement": True},
    )

    row: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    submission_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey("submissions.id", ondelete="CASCADE")
    )
    #: 0 for a job that is no array
    array_task: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    state: orm.Mapped[str] = orm.mapped_column(vocabulary.STATE)
    settled: orm.Mapped[bool]
    created_at: orm.Mapped[datetime.datetime]
    job_id: orm.Mapped[str | None]
    raw_job_id: orm.Mapped[str | None]
    array_job_id: orm.Mapped[str | None]
    array_task_id: orm.Mapped[int | None] = orm.mapped_column(columns.Whole(0))
    raw_state: orm.Mapped[str | None]
    reason: orm.Mapped[str | None]
    cause: orm.Mapped[str | None]
    exit_code: orm.Mapped[int | None]
    exit_signal: orm.Mapped[int | None]
    partition: orm.Mapped[str | None]
    account: orm.Mapped[str | None]
    qos: orm.Mapped[str | None]
    nodes: orm.Mapped[int | None] = orm.mapped_column(columns.Whole(0))
    gpus: orm.Mapped[int | None] = orm.mapped_column(columns.Whole(0))
    node_list: orm.Mapped[str | None]
    time_limit_seconds: orm.Mapped[int | None] = orm.mapped_column(
        columns.Large(0, vocabulary.MOST_SECONDS)
    )
    submitted_at: orm.Mapped[datetime.datetime | None]
    started_at: orm.Mapped[datetime.datetime | None]
    ended_at: orm.Mapped[datetime.datetime | None]
    attempt: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    restart_count: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    sweep: orm.Mapped[str | None]
    #: JSON list of strings
    labels: orm.Mapped[str] = orm.mapped_column(columns.Document(list))
    stdout_path: orm.Mapped[str | None]
    stderr_path: orm.Mapped[str | None]
    observed_at: orm.Mapped[datetime.datetime | None]
    misses: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    #: grows with each change, so that a change made from an older view is refused
    version: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    missing_since: orm.Mapped[datetime.datetime | None]
    submitter_host: orm.Mapped[str | None]
    submitter_boot_id: orm.Mapped[str | None]
    submitter_pid: orm.Mapped[int | None] = orm.mapped_column(columns.Whole(0))
    submitter_start_ticks: orm.Mapped[int | None] = orm.mapped_column(columns.Large())
    grace_since: orm.Mapped[datetime.datetime | None]
    #: when what Slurm does not have is sent again by itself
    resend_at: orm.Mapped[datetime.datetime | None]
    refusals: orm.Mapped[int] = orm.mapped_column(columns.Whole(0), server_default=sa.text("0"))
    #: the whole name in Slurm of a job that was not sent by us; none: NAME.TOKEN
    tracked_name: orm.Mapped[str | None]
    cpus: orm.Mapped[int | None] = orm.mapped_column(columns.Whole(0))
    #: JSON list of what is wrong with it while it runs; NULL: nothing
    alerts: orm.Mapped[str | None] = orm.mapped_column(columns.Document(list))
    #: jobs.row whose work this one goes on with; for a foreign key SQLite would copy the table
    continues: orm.Mapped[int | None]
    #: what follows its end is still to be decided by its [retry]; else NULL
    recovers: orm.Mapped[bool | None]

    submission: orm.Mapped[Submission] = orm.relationship(lazy="raise")


class Sweep(Base):
    """Many jobs of one spec. The long text stands last and is loaded only when asked for."""

    __tablename__ = "sweeps"
    __table_args__ = (sa.Index(None, "name"), {"sqlite_autoincrement": True})

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str]
    kind: orm.Mapped[str]
    #: open, or cancelled: then nothing more of it is submitted
    state: orm.Mapped[str] = orm.mapped_column(columns.Word("open", "cancelled"))
    cluster: orm.Mapped[str]
    scheduler: orm.Mapped[str] = orm.mapped_column(vocabulary.SCHEDULER)
    profile: orm.Mapped[str]
    #: the file that it was read from
    source: orm.Mapped[str]
    #: where it was submitted
    folder: orm.Mapped[str]
    max_running: orm.Mapped[int | None] = orm.mapped_column(columns.Whole(1))
    created_at: orm.Mapped[datetime.datetime]
    #: JSON of the file's keys, with those of the command line
    spec: orm.Mapped[str] = orm.mapped_column(columns.Document(), deferred=True)


class SweepShape(Base):
    """What points of a sweep have in common that differ in arguments alone."""

    __tablename__ = "sweep_shapes"
    __table_args__ = (sa.Index(None, "sweep_id"),)

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    sweep_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("sweeps.id", ondelete="CASCADE"))
    shape: orm.Mapped[str]
    #: of one point, were it to run until its time limit; NULL where that is not known
    gpu_hours: orm.Mapped[float | None]
    node_hours: orm.Mapped[float | None]
    #: JSON of the job with the arguments that all points begin from
    spec: orm.Mapped[str] = orm.mapped_column(columns.Document())


class SweepPoint(Base):
    """One point of a sweep, and the newest job that was made of it."""

    __tablename__ = "sweep_points"
    __table_args__ = (
        sa.PrimaryKeyConstraint("sweep_id", "number"),
        sa.UniqueConstraint("sweep_id", "identity"),
        # A job is one point's, and the states of all points are read from this index.
        sa.UniqueConstraint("job_row"),
        sa.Index("ix_sweep_points_jobs", "sweep_id", "job_row"),
    )

    sweep_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("sweeps.id", ondelete="CASCADE"))
    #: from 1, in the order of the sweep
    number: orm.Mapped[int] = orm.mapped_column(columns.Whole(1))
    identity: orm.Mapped[str]
    name: orm.Mapped[str]
    repeat: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    shape_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("sweep_shapes.id"))
    #: NULL while nothing was submitted of it. A job of a point is never deleted alone
    job_row: orm.Mapped[int | None] = orm.mapped_column(sa.ForeignKey("jobs.row"))
    #: JSON by dotted key: what was varied, and what of the spec it gives a value
    settings: orm.Mapped[str] = orm.mapped_column(columns.Document())
    changes: orm.Mapped[str] = orm.mapped_column(columns.Document())


class Baseline(Base):
    """What jobs showed when they were named a baseline; only ever added, the newest counts.

    The numbers stand here, so that they outlive the jobs.
    """

    __tablename__ = "baselines"
    __table_args__ = (sa.Index(None, "name"), {"sqlite_autoincrement": True})

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str]
    created_at: orm.Mapped[datetime.datetime]
    #: the jobs, the sweep or the file that it was taken from
    source: orm.Mapped[str]
    runs: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    #: JSON of the unit of their sizes and of each measurement
    measurements: orm.Mapped[str] = orm.mapped_column(columns.Document(), deferred=True)


class Attempt(Base):
    """One start of a job."""

    __tablename__ = "attempts"
    __table_args__ = (sa.PrimaryKeyConstraint("job_row", "number"),)

    job_row: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("jobs.row", ondelete="CASCADE"))
    number: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    state: orm.Mapped[str] = orm.mapped_column(vocabulary.STATE)
    raw_state: orm.Mapped[str | None]
    reason: orm.Mapped[str | None]
    exit_code: orm.Mapped[int | None]
    exit_signal: orm.Mapped[int | None]
    node_list: orm.Mapped[str | None]
    submitted_at: orm.Mapped[datetime.datetime | None]
    started_at: orm.Mapped[datetime.datetime | None]
    ended_at: orm.Mapped[datetime.datetime | None]


class UsedFigures(Base):
    """What a settled attempt used: Slurm and the GPUs' files are not asked again for it."""

    __tablename__ = "used_figures"
    __table_args__ = (sa.PrimaryKeyConstraint("job_row", "attempt"),)

    job_row: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("jobs.row", ondelete="CASCADE"))
    attempt: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    #: JSON
    figures: orm.Mapped[str] = orm.mapped_column(columns.Document())


class JobEvent(Base):
    """Something that was seen or done; only ever added."""

    __tablename__ = "job_events"
    __table_args__ = (sa.Index(None, "job_row"), {"sqlite_autoincrement": True})

    id: orm.Mapped[int] = orm.mapped_column(columns.Key(1), primary_key=True)
    job_row: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("jobs.row", ondelete="CASCADE"))
    at: orm.Mapped[datetime.datetime]
    kind: orm.Mapped[str]
    attempt: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    state: orm.Mapped[str | None] = orm.mapped_column(vocabulary.STATE)
    raw_state: orm.Mapped[str | None]
    source: orm.Mapped[str]
    detail: orm.Mapped[str]


class LogCursor(Base):
    """How far one file of a job has been read, and the reader's state there."""

    __tablename__ = "log_cursors"
    # metric_sets.log_id names these numbers, so none is given twice.
    __table_args__ = (sa.UniqueConstraint("job_row", "path"), {"sqlite_autoincrement": True})

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    job_row: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("jobs.row", ondelete="CASCADE"))
    path: orm.Mapped[str]
    #: text: st_dev and st_ino are unsigned 64 bits, more than a database's integer holds
    device: orm.Mapped[str] = orm.mapped_column(columns.Digits())
    inode: orm.Mapped[str] = orm.mapped_column(columns.Digits())
    offset_bytes: orm.Mapped[int] = orm.mapped_column(columns.Large(0))
    line: orm.Mapped[int] = orm.mapped_column(columns.Large(0))
    #: JSON of the reader: partial line, attempt, what patterns carry from line to line
    carry: orm.Mapped[str] = orm.mapped_column(columns.Document(or_empty=True))
    updated_at: orm.Mapped[datetime.datetime]


#: For very many: metric_lines.time as it is stored.
METRIC_TIME = columns.BareTime(("metric_lines", "time"))
#: Numbers that a row of `metric_lines` has room for; a line with more takes several rows.
METRIC_PLACES = 8


class MetricSet(Base):
    """What the numbers of alike lines have in common."""

    __tablename__ = "metric_sets"
    __table_args__ = (sa.Index(None, "job_row"), {"sqlite_autoincrement": True})

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    job_row: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("jobs.row", ondelete="CASCADE"))
    #: log_cursors.id of the file they were read from: its path is long and stands there once. No
    #: foreign key: each deleted cursor would search all sets; both go with their job.
    log_id: orm.Mapped[int | None]
    attempt: orm.Mapped[int] = orm.mapped_column(columns.Whole(0))
    source: orm.Mapped[str]
    rank: orm.Mapped[int | None] = orm.mapped_column(columns.Large())
    world_size: orm.Mapped[int | None] = orm.mapped_column(columns.Large())
    #: names and units of the numbers, in their places; NULL behind the last
    name0: orm.Mapped[str]
    name1: orm.Mapped[str | None]
    name2: orm.Mapped[str | None]
    name3: orm.Mapped[str | None]
    name4: orm.Mapped[str | None]
    name5: orm.Mapped[str | None]
    name6: orm.Mapped[str | None]
    name7: orm.Mapped[str | None]
    unit0: orm.Mapped[str]
    unit1: orm.Mapped[str | None]
    unit2: orm.Mapped[str | None]
    unit3: orm.Mapped[str | None]
    unit4: orm.Mapped[str | None]
    unit5: orm.Mapped[str | None]
    unit6: orm.Mapped[str | None]
    unit7: orm.Mapped[str | None]


class MetricLine(Base):
    """The numbers of one line of a log or a metrics.jsonl.

    A row a line and not a row a number: measured with seven numbers a line, that takes a fifth of
    the time to write and an eighth of the room.
    """

    __tablename__ = "metric_lines"
    # A number is never given twice: who follows a job's numbers asks for those behind the last.
    __table_args__ = (sa.Index(None, "set_id"), {"sqlite_autoincrement": True})

    id: orm.Mapped[int] = orm.mapped_column(columns.Key(1), primary_key=True)
    set_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("metric_sets.id", ondelete="CASCADE"))
    step: orm.Mapped[int | None] = orm.mapped_column(columns.Large())
    epoch: orm.Mapped[int | None] = orm.mapped_column(columns.Large())
    time: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        columns.UtcDateTime(any_year=True)
    )
    line: orm.Mapped[int | None] = orm.mapped_column(columns.Large())
    #: in the places of the set's names; NULL is NaN
    value0: orm.Mapped[float | None]
    value1: orm.Mapped[float | None]
    value2: orm.Mapped[float | None]
    value3: orm.Mapped[float | None]
    value4: orm.Mapped[float | None]
    value5: orm.Mapped[float | None]
    value6: orm.Mapped[float | None]
    value7: orm.Mapped[float | None]


class Refresh(Base):
    """What was last heard of a cluster, and who is asking it now."""

    __tablename__ = "refreshes"

    cluster: orm.Mapped[str] = orm.mapped_column(primary_key=True)
    last_good_squeue_at: orm.Mapped[datetime.datetime | None]
    last_good_sacct_at: orm.Mapped[datetime.datetime | None]
    last_tried_at: orm.Mapped[datetime.datetime | None]
    failing_since: orm.Mapped[datetime.datetime | None]
    last_error: orm.Mapped[str | None]
    holder: orm.Mapped[str | None]
    claimed_until: orm.Mapped[datetime.datetime | None]
