"""Every question and change, as plain functions of an open session. None of them commits."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import orm

from db import dialects, models, statements

#: A claim that reaches further into the future was made by a clock that was wrong.
LONGEST_CLAIM_SECONDS = 600.0
#: Jobs are read and written as columns: an object of the ORM for each takes four times as long,
#: and its mappers must be set up first in each process.
_JOBS = models.Job.__table__
_SUBMISSIONS = models.Submission.__table__
_JOB = _JOBS.c
_SUBMISSION = _SUBMISSIONS.c
#: What each submission asks and stores: to build a statement takes longer than to run it.
_ADD_SUBMISSION = sa.insert(_SUBMISSIONS).returning(_SUBMISSION.id)  # type: ignore[arg-type]
_ADD_JOBS = sa.insert(_JOBS)  # type: ignore[arg-type]
_ADD_JOB = _ADD_JOBS.returning(_JOB.row)
_ADD_EVENTS = sa.insert(models.JobEvent.__table__)  # type: ignore[arg-type]
_ROWS = sa.select(_JOB.array_task, _JOB.row).where(_JOB.submission_id == sa.bindparam("submission"))
_TASKS: sa.Select[Any] = (
    sa.select(_JOB.row, _JOB.array_task_id, _JOB.state, _JOB.job_id)
    .join_from(_JOBS, _SUBMISSIONS)
    .where(_SUBMISSION.token == sa.bindparam("token"))
    .order_by(_JOB.row)
)
_UPDATE_JOB = sa.update(_JOBS).where(_JOB.row == sa.bindparam("this_row"))  # type: ignore[arg-type]
_CHANGE_JOB = _UPDATE_JOB.values(version=_JOB.version + 1)
_CHANGE_VERSION = _CHANGE_JOB.where(_JOB.version == sa.bindparam("this_version"))
#: More is expected of Slurm, or is to be done by us.
_LIVE = (_JOB.settled.is_(False), _JOB.resend_at.is_not(None))
#: Values of one kind in one statement: SQLite binds 32,766.
MOST_VALUES = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobQuery:
    """Which jobs; all that is given must hold, of the values of one field any."""

    #: our row numbers
    rows: Collection[int] = ()
    #: Slurm's: "123" also finds the tasks of array 123
    job_ids: Collection[str] = ()
    names: Collection[str] = ()
    #: all of them
    labels: Collection[str] = ()
    #: names; all jobs of them
    sweeps: Collection[str] = ()
    #: or numbers of sweeps; the newest job of each point
    sweep_rows: Collection[int] = ()
    states: Collection[str] = ()
    partitions: Collection[str] = ()
    #: "slurm" or "local"; none: both
    scheduler: str | None = None
    #: only those of which more is expected
    live: bool = False
    #: only those of which Slurm is expected to say more, or that are to be sent again by then
    due: datetime.datetime | None = None
    #: only those that wait to be sent again
    waiting: bool = False
    #: only those that were not sent by us
    tracked: bool = False
    #: only those that ended then or later, not well, and of which no cause is stored
    unexplained_since: datetime.datetime | None = None
    #: only rows with a smaller number
    below: int | None = None
    #: begun or ended then or later
    since: datetime.datetime | None = None
    #: live, or begun or ended then or later
    live_or_since: datetime.datetime | None = None
    #: the newest so many; none: all
    limit: int | None = 100
    #: the limit counts submissions, so that no array is cut
    whole_arrays: bool = False


def add_submission(session: statements.Session, submission: Mapping[str, object]) -> int:
    """Store a submission by its columns; return its number."""
    return session.run(_ADD_SUBMISSION, submission)


def add_jobs(
    session: statements.Session, submission: int, jobs: Sequence[Mapping[str, object]]
) -> list[int]:
    """Store jobs of a submission by their columns, the same of each; return their rows."""
    values = [{**job, "submission_id": submission} for job in jobs]
    if len(values) == 1:
        return [session.run(_ADD_JOB, values[0])]
    session.connection().execute(_ADD_JOBS, values)
    found = session.connection().execute(_ROWS, {"submission": submission})
    rows = {task: row for task, row in found}
    return [rows[job["array_task"]] for job in jobs]


def set_request_hash(session: orm.Session, token: str, sha256: str) -> None:
    """Store the hash of what the local runner is asked for."""
    changed = sa.update(_SUBMISSIONS).where(_SUBMISSION.token == token)  # type: ignore[arg-type]
    session.execute(changed.values(request_sha256=sha256))


def submission(session: orm.Session, token: str) -> sa.Row[Any] | None:
    return session.execute(sa.select(_SUBMISSIONS).where(_SUBMISSION.token == token)).first()


def submission_of(session: orm.Session, row: int) -> sa.Row[Any] | None:
    """Return the submission of the job with this row number."""
    joined = _SUBMISSIONS.join(_JOBS, _JOB.submission_id == _SUBMISSION.id)
    statement = sa.select(_SUBMISSIONS).select_from(joined).where(_JOB.row == row)
    return session.execute(statement).first()


def specs(session: orm.Session, tokens: Collection[str]) -> dict[str, str]:
    """Return the specs of these submissions by token, without their scripts."""
    columns = sa.select(_SUBMISSION.token, _SUBMISSION.spec)
    found = session.execute(columns.where(among(_SUBMISSION.token, tokens)))
    return {token: spec for token, spec in found}


def job(session: orm.Session, row: int) -> sa.Row[Any] | None:
    return session.execute(select_jobs().where(_JOB.row == row)).first()


def live_jobs(session: orm.Session, cluster: str) -> Sequence[sa.Row[Any]]:
    """Return the jobs of which more is expected, oldest first."""
    live = _JOB.settled.is_(False)
    statement = select_jobs().where(live, _SUBMISSION.cluster == cluster)
    return session.execute(statement.order_by(_JOB.row)).all()


def tasks(session: orm.Session, token: str) -> Sequence[sa.Row[Any]]:
    """Return row, array_task_id, state and job_id of a submission's jobs, oldest first."""
    return session.connection().execute(_TASKS, {"token": token}).all()


def jobs_of_tokens(session: orm.Session, tokens: Collection[str]) -> Sequence[sa.Row[Any]]:
    """Return the jobs of these submissions, oldest first."""
    statement = select_jobs().where(among(_SUBMISSION.token, tokens))
    return session.execute(statement.order_by(_JOB.row)).all()


def jobs(session: orm.Session, query: JobQuery) -> Sequence[sa.Row[Any]]:
    """Return the jobs that fit, newest first."""
    return session.execute(_fitting(query)).all()


def job_rows(session: orm.Session, query: JobQuery) -> list[int]:
    """Return the rows of the jobs that fit, newest first, whatever else they hold."""
    return [*session.scalars(_fitting(query).with_only_columns(_JOB.row))]


def _fitting(query: JobQuery) -> sa.Select[Any]:
    statement = select_jobs().order_by(_JOB.row.desc())
    if query.rows:
        statement = statement.where(among(_JOB.row, query.rows))
    if query.job_ids:
        statement = statement.where(_has_job_id(query.job_ids))
    if query.names:
        statement = statement.where(among(_SUBMISSION.name, query.names))
    for label in query.labels:
        statement = statement.where(dialects.holds(_JOB.labels, label))
    if query.sweeps or query.sweep_rows:
        point = models.SweepPoint
        newest = sa.select(point.job_row).where(among(point.sweep_id, query.sweep_rows))
        named = among(_JOB.sweep, query.sweeps)
        statement = statement.where(_any_of(named, _JOB.row.in_(newest)))
    if query.states:
        statement = statement.where(_JOB.state.in_(query.states))
    if query.partitions:
        statement = statement.where(_JOB.partition.in_(query.partitions))
    if query.scheduler is not None:
        statement = statement.where(_SUBMISSION.scheduler == query.scheduler)
    if query.live:
        statement = statement.where(_any_of(*_LIVE))
    if query.due is not None:
        statement = statement.where(_any_of(_LIVE[0], _JOB.resend_at <= query.due))
    if query.waiting:
        statement = statement.where(_LIVE[1])
    if query.tracked:
        statement = statement.where(_JOB.tracked_name.is_not(None))
    if query.unexplained_since is not None:
        statement = statement.where(
            _since(query.unexplained_since, live=False),
            _JOB.settled.is_(True),
            _JOB.cause.is_(None),
            _JOB.resend_at.is_(None),
            _JOB.state != "COMPLETED",
        )
    if query.below is not None:
        statement = statement.where(_JOB.row < query.below)
    if query.since is not None:
        statement = statement.where(_since(query.since, live=False))
    if query.live_or_since is not None:
        statement = statement.where(_since(query.live_or_since, live=True))
    if query.whole_arrays and query.limit is not None:
        fitting = statement.with_only_columns(_JOB.submission_id).order_by(None).distinct()
        newest = fitting.order_by(_JOB.submission_id.desc()).limit(query.limit)
        return statement.where(_JOB.submission_id.in_(newest))
    return statement.limit(query.limit)


def change_job(
    session: statements.Session, row: int, changes: Mapping[str, object], version: int | None
) -> bool:
    """Change columns of a job, if it still has this version (None: whatever it has)."""
    values = {**changes, "this_row": row}
    if version is None:
        return session.run(_CHANGE_JOB, values) == 1
    return session.run(_CHANGE_VERSION, {**values, "this_version": version}) == 1


def change_jobs(
    session: orm.Session, changes: Sequence[tuple[int, Mapping[str, object], int | None]]
) -> set[int]:
    """Change columns of many jobs; of each only if it has its version (None: whatever it has).

    Returns the rows that were changed. Takes a writing transaction: between the look at the
    versions and the change nobody else writes.
    """
    versions: dict[int, int] = {}
    for rows in portions([row for row, _, _ in changes]):
        look = sa.select(_JOB.row, _JOB.version).where(_JOB.row.in_(rows))
        versions.update({row: version for row, version in session.execute(look.with_for_update())})
    alike: dict[frozenset[str], list[dict[str, object]]] = {}
    changed: set[int] = set()
    for row, columns, version in changes:
        if row in changed or row not in versions or version not in (None, versions[row]):
            continue
        changed.add(row)
        values = {**columns, "version": versions[row] + 1, "this_row": row}
        alike.setdefault(frozenset(columns), []).append(values)
    for values_of in alike.values():
        # The names in the values are those of columns.
        session.connection().execute(_UPDATE_JOB, values_of)
    return changed


def confirm_jobs(session: orm.Session, rows: Collection[int], at: datetime.datetime) -> None:
    """Store that these jobs were seen unchanged; a newer moment stays."""
    older = sa.or_(_JOB.observed_at.is_(None), _JOB.observed_at < at)
    for portion in portions(rows):
        statement = sa.update(_JOBS).where(_JOB.row.in_(portion), older)  # type: ignore[arg-type]
        session.execute(statement.values(observed_at=at))


def put_attempts(session: orm.Session, attempts: Sequence[Mapping[str, object]]) -> None:
    """Store attempts by their columns, each in place of the same number's older view."""
    if not attempts:
        return
    table = models.Base.metadata.tables["attempts"]
    dialects.upsert(session, table, attempts, ["job_row", "number"])
    session.expire_all()


def attempts(session: orm.Session, rows: Collection[int]) -> list[models.Attempt]:
    """Return the attempts of these jobs, each job's oldest first."""
    found: list[models.Attempt] = []
    for portion in portions(rows):
        statement = sa.select(models.Attempt).where(models.Attempt.job_row.in_(portion))
        found += session.scalars(
            statement.order_by(models.Attempt.job_row, models.Attempt.number)
        ).all()
    return found


def add_events(session: statements.Session, events: Sequence[Mapping[str, object]]) -> None:
    """Store events by their columns."""
    if len(events) == 1:
        session.run(_ADD_EVENTS, events[0])
    elif events:
        session.connection().execute(_ADD_EVENTS, [dict(event) for event in events])


def jobs_with_event(session: orm.Session, rows: Collection[int], kind: str) -> set[int]:
    """Return those of the jobs that have an event of this kind."""
    found: set[int] = set()
    for portion in portions(rows):
        event = models.JobEvent
        statement = sa.select(event.job_row).where(event.job_row.in_(portion), event.kind == kind)
        found.update(session.scalars(statement))
    return found


def events(session: orm.Session, row: int) -> Sequence[models.JobEvent]:
    statement = sa.select(models.JobEvent).where(models.JobEvent.job_row == row)
    return session.scalars(statement.order_by(models.JobEvent.id)).all()


def refresh(session: orm.Session, cluster: str) -> sa.Row[Any] | None:
    refreshes = models.Refresh.__table__
    return session.execute(sa.select(refreshes).where(refreshes.c.cluster == cluster)).first()


def claim_refresh(
    session: orm.Session,
    cluster: str,
    *,
    now: datetime.datetime,
    floor_seconds: float,
    claim_seconds: float,
    holder: str,
) -> bool:
    """Take the right to ask Slurm, unless somebody has it or asked less than the floor ago."""
    state = session.get(models.Refresh, cluster, with_for_update=True)
    if state is None:
        state = models.Refresh(cluster=cluster)
        session.add(state)
    held_seconds = _seconds(now, state.claimed_until)
    if state.holder != holder and 0 < held_seconds <= LONGEST_CLAIM_SECONDS:
        return False
    for asked_at in (state.last_good_squeue_at, state.last_tried_at):
        # A moment far in the future was written by a clock that was wrong: not fresh.
        if asked_at is not None and abs(_seconds(now, asked_at)) < floor_seconds:
            return False
    claim = datetime.timedelta(seconds=min(claim_seconds, LONGEST_CLAIM_SECONDS))
    state.holder, state.last_tried_at, state.claimed_until = holder, now, now + claim
    session.flush()
    return True


def finish_refresh(
    session: orm.Session,
    cluster: str,
    *,
    holder: str,
    squeue_at: datetime.datetime | None,
    sacct_at: datetime.datetime | None,
    failed_at: datetime.datetime | None,
    error: str,
) -> None:
    """Store how a refresh went and give the claim back, if it is still this holder's."""
    state = session.get(models.Refresh, cluster, with_for_update=True)
    if state is None:
        state = models.Refresh(cluster=cluster)
        session.add(state)
    if squeue_at is not None:
        state.last_good_squeue_at = squeue_at
        state.failing_since = state.last_error = None
    if sacct_at is not None:
        state.last_good_sacct_at = sacct_at
    if failed_at is not None:
        state.failing_since = state.failing_since or failed_at
        state.last_error = error
    if state.holder == holder:
        state.holder = state.claimed_until = None
    session.flush()


def portions(items: Collection[int]) -> Iterator[Sequence[int]]:
    """Give the items in parts that fit a statement: SQLite binds 32,766 values."""
    listed = list(items)
    for start in range(0, len(listed), MOST_VALUES):
        yield listed[start : start + MOST_VALUES]


def select_jobs() -> sa.Select[Any]:
    """Return the columns of a job, with those of its submission that it is known by."""
    of_submission = ("token", "cluster", "scheduler", "name", "run_dir")
    columns = [*_JOB, *(_SUBMISSION[name] for name in of_submission)]
    return sa.select(*columns).join_from(_JOBS, _SUBMISSIONS)


def _has_job_id(job_ids: Collection[str]) -> sa.ColumnElement[bool]:
    columns = (_JOB.job_id, _JOB.raw_job_id, _JOB.array_job_id)
    return _any_of(*(among(column, job_ids) for column in columns))


def _since(since: datetime.datetime, *, live: bool) -> sa.ColumnElement[bool]:
    wanted = [_JOB.created_at >= since, _JOB.ended_at >= since]
    return _any_of(*wanted, *(_LIVE if live else ()))


def among(
    column: sa.ColumnElement[Any] | orm.InstrumentedAttribute[Any], values: Collection[Any]
) -> sa.ColumnElement[bool]:
    """Return whether the column has one of the values; very many are bound as one value."""
    if len(values) <= MOST_VALUES:
        return column.in_(values)
    texts = isinstance(next(iter(values)), str)
    return column.in_(dialects.each_text(values) if texts else dialects.each(values))


def _any_of(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    # One search by each index; with OR SQLite may read the whole table instead.
    return _JOB.row.in_(
        sa.union(*(sa.select(_JOB.row).where(condition) for condition in conditions))
    )


def row_count(result: sa.Result[Any]) -> int:
    return cast("sa.CursorResult[Any]", result).rowcount


def _seconds(start: datetime.datetime, end: datetime.datetime | None) -> float:
    return 0.0 if end is None else (end - start).total_seconds()
