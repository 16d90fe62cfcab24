"""Submissions and their jobs."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from db import dialects, models, queries, statements
from orchestrator import jobs

_JOBS = models.Job.__table__
_SUBMISSIONS = models.Submission.__table__
_JOB = _JOBS.c
_SUBMISSION = _SUBMISSIONS.c
#: What each submission runs is built once: to build a statement takes longer than to run it.
_ADD_SUBMISSION = sa.insert(_SUBMISSIONS).returning(_SUBMISSION.id)  # type: ignore[arg-type]
_ADD_JOBS = sa.insert(_JOBS)  # type: ignore[arg-type]
_ADD_JOB = _ADD_JOBS.returning(_JOB.row)
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
#: Not settled, or deferred.
_LIVE = (_JOB.settled.is_(False), _JOB.resend_at.is_not(None))
#: Columns that are fields of a submission.
_SUBMISSION_FIELDS = [column for column in _SUBMISSION if column.name != "id"]
#: Fields of a job that are columns of the same name and type, and may change.
_PLAIN_FIELDS = ({field.name for field in dataclasses.fields(jobs.Job)} & {*_JOB.keys()}) - {
    *("row", "created_at", "state", "labels", "alerts", "version")
}
_SUBMITTER_COLUMNS = (
    "submitter_host",
    "submitter_boot_id",
    "submitter_pid",
    "submitter_start_ticks",
)
_COUNTS = ("attempt", "restart_count", "misses", "refusals", "version")


class JobStore:
    """Submissions and their jobs within one transaction."""

    def __init__(self, db: statements.Session) -> None:
        self._db = db

    def add_submission(
        self,
        submission: jobs.Submission,
        *,
        array_tasks: Sequence[int] | None = None,
        labels: Sequence[str] = (),
        submitter: jobs.Submitter | None = None,
        state: jobs.JobState = jobs.JobState.SUBMITTING,
        **fields: object,
    ) -> list[jobs.Job]:
        """Store an intent: one job, or one for each array task; `fields` are those of jobs.Job."""
        fields = {"state": state, "labels": tuple(labels), "submitter": submitter, **fields}
        number = self._db.run(_ADD_SUBMISSION, dict(vars(submission)))
        tasks = [None] if array_tasks is None else array_tasks
        return self._add_jobs(number, submission, tasks, fields)

    def add_tasks(self, token: str, array_tasks: Sequence[int], **fields: object) -> list[jobs.Job]:
        """Store more tasks of a stored array; `fields` are those of jobs.Job."""
        statement = sa.select(_SUBMISSIONS).where(_SUBMISSION.token == token)
        submission = self._db.execute(statement).one()
        return self._add_jobs(submission.id, submission, array_tasks, fields)

    def _add_jobs(
        self,
        number: int,
        submission: jobs.Submission | sa.Row[Any],
        tasks: Sequence[int | None],
        fields: Mapping[str, object],
    ) -> list[jobs.Job]:
        columns = {
            "submission_id": number,
            "settled": False,
            **dict.fromkeys(_COUNTS, 0),
            "created_at": submission.created_at,
            **_columns(fields),
        }
        new = [{**columns, "array_task": task or 0, "array_task_id": task} for task in tasks]
        if len(new) == 1:
            rows = {new[0]["array_task"]: self._db.run(_ADD_JOB, new[0])}
        else:
            self._db.connection().execute(_ADD_JOBS, new)
            stored = self._db.connection().execute(_ROWS, {"submission": number})
            rows = {task: row for task, row in stored}
        shared = {name: getattr(submission, name) for name in queries.OF_SUBMISSION}
        return [_record({"row": rows[job["array_task"]], **job, **shared}) for job in new]

    def submission(self, token: str) -> jobs.Submission | None:
        statement = sa.select(*_SUBMISSION_FIELDS).where(_SUBMISSION.token == token)
        row = self._db.execute(statement).first()
        return None if row is None else jobs.Submission(**row._mapping)

    def submission_of(self, row: int) -> jobs.Submission:
        """Return the submission of the job with this row number."""
        joined = _SUBMISSIONS.join(_JOBS, _JOB.submission_id == _SUBMISSION.id)
        statement = sa.select(*_SUBMISSION_FIELDS).select_from(joined).where(_JOB.row == row)
        return jobs.Submission(**self._db.execute(statement).one()._mapping)

    def specs(self, tokens: Collection[str]) -> dict[str, str]:
        """Return the specs of these submissions, as JSON by token."""
        statement = sa.select(_SUBMISSION.token, _SUBMISSION.spec)
        found = self._db.execute(statement.where(queries.among(_SUBMISSION.token, tokens)))
        return {token: spec for token, spec in found}

    def set_request_hash(self, token: str, sha256: str) -> None:
        """Store the hash of the request to the local runner."""
        update = sa.update(_SUBMISSIONS).where(_SUBMISSION.token == token)  # type: ignore[arg-type]
        self._db.execute(update.values(request_sha256=sha256))

    def get(self, row: int) -> jobs.Job | None:
        job = self._db.execute(queries.select_jobs().where(_JOB.row == row)).first()
        return None if job is None else job_records([job])[0]

    def find(self, query: jobs.JobQuery) -> list[jobs.Job]:
        """Return the jobs that match, newest first."""
        return job_records(self._db.execute(_matching(query)).all())

    def find_rows(self, query: jobs.JobQuery) -> list[int]:
        """Return the rows of the jobs that match, newest first, damaged ones included."""
        return [*self._db.scalars(_matching(query).with_only_columns(_JOB.row))]

    def of_submissions(self, tokens: Collection[str]) -> list[jobs.Job]:
        """Return the jobs of these submissions, oldest first."""
        statement = queries.select_jobs().where(queries.among(_SUBMISSION.token, tokens))
        return job_records(self._db.execute(statement.order_by(_JOB.row)).all())

    def tasks(self, token: str) -> list[jobs.Task]:
        """Return the jobs of a submission (the tasks of an array), oldest first."""
        return [
            jobs.Task(row=row, array_task_id=task, state=jobs.JobState(state), job_id=job_id)
            for row, task, state, job_id in self._db.connection().execute(_TASKS, {"token": token})
        ]

    def live(self, cluster: str) -> list[jobs.Job]:
        """Return the jobs that are not settled, oldest first."""
        return job_records(self._db.execute(_unsettled(cluster)).all())

    def live_versions(self, cluster: str) -> list[tuple[int, int]]:
        """Return row and version of the jobs that are not settled, oldest first."""
        statement = _unsettled(cluster).with_only_columns(_JOB.row, _JOB.version)
        return [(row, version) for row, version in self._db.execute(statement)]

    def settled_after(
        self,
        after: tuple[datetime.datetime, int],
        ended_since: datetime.datetime,
        limit: int,
    ) -> list[tuple[datetime.datetime, int]]:
        """Return when settled jobs were last observed, and their rows, in that order.

        Only pairs greater than `after`. `ended_since` limits the search, by an index.
        """
        later = sa.or_(
            _JOB.observed_at > after[0],
            sa.and_(_JOB.observed_at == after[0], _JOB.row > after[1]),
        )
        statement = (
            sa.select(_JOB.observed_at, _JOB.row)
            .where(_JOB.ended_at >= ended_since, _JOB.settled.is_(True), later)
            .order_by(_JOB.observed_at, _JOB.row)
            .limit(limit)
        )
        return [(at, row) for at, row in self._db.execute(statement)]

    def next_resend_at(self, after: datetime.datetime) -> datetime.datetime | None:
        """Return the first moment later than `after` at which a deferred job is submitted again."""
        statement = sa.select(sa.func.min(_JOB.resend_at)).where(_JOB.resend_at > after)
        return self._db.execute(statement).scalar()

    def change(
        self, row: int, changes: Mapping[str, object], *, version: int | None = None
    ) -> bool:
        """Change fields of a job.

        Return false if there is no such job, or if it no longer has this version, which is that of
        the record from which the changes were made (none: any version).
        """
        values = {**_columns(changes), "this_row": row}
        if version is None:
            return self._db.run(_CHANGE_JOB, values) == 1
        return self._db.run(_CHANGE_VERSION, {**values, "this_version": version}) == 1

    def change_many(
        self, changes: Sequence[tuple[int, Mapping[str, object], int | None]]
    ) -> set[int]:
        """Change fields of many jobs, each (row, fields, version) as in `change`.

        Return the rows that were changed. Needs a write transaction: no other process writes
        between the check of the versions and the change.
        """
        versions: dict[int, int] = {}
        for rows in queries.portions([row for row, _, _ in changes]):
            locked = sa.select(_JOB.row, _JOB.version).where(_JOB.row.in_(rows)).with_for_update()
            versions.update({row: version for row, version in self._db.execute(locked)})
        by_columns: dict[frozenset[str], list[dict[str, object]]] = {}
        changed: set[int] = set()
        for row, fields, version in changes:
            columns = _columns(fields)
            if row in changed or row not in versions or version not in (None, versions[row]):
                continue
            changed.add(row)
            values = {**columns, "version": versions[row] + 1, "this_row": row}
            by_columns.setdefault(frozenset(columns), []).append(values)
        for several in by_columns.values():
            # The names in the values are those of columns.
            self._db.connection().execute(_UPDATE_JOB, several)
        return changed

    def confirm(self, rows: Collection[int], at: datetime.datetime) -> None:
        """Store that these jobs were observed unchanged at this moment; a later moment stays."""
        older = sa.or_(_JOB.observed_at.is_(None), _JOB.observed_at < at)
        for portion in queries.portions(rows):
            update = sa.update(_JOBS).where(_JOB.row.in_(portion), older)  # type: ignore[arg-type]
            self._db.execute(update.values(observed_at=at))


def job_records(rows: Sequence[sa.Row[Any]]) -> list[jobs.Job]:
    """Return the jobs of rows with the columns of `queries.select_jobs`."""
    if not rows:
        return []
    names = rows[0]._fields
    return [_record(dict(zip(names, row, strict=True))) for row in rows]


def _record(columns: dict[str, Any]) -> jobs.Job:
    for name in ("submission_id", "array_task"):
        columns.pop(name)
    host, boot_id, pid, start_ticks = (columns.pop(name, None) for name in _SUBMITTER_COLUMNS)
    columns["submitter"] = host and jobs.Submitter(
        host=host, boot_id=boot_id, pid=pid, start_ticks=start_ticks
    )
    columns["state"] = jobs.JobState(columns["state"])
    # Few jobs have labels.
    columns["labels"] = () if columns["labels"] == "[]" else tuple(json.loads(columns["labels"]))
    # Fewer have alerts.
    if (alerts := columns.pop("alerts", None)) is not None:
        columns["alerts"] = tuple(
            jobs.Alert(**{**alert, "since": datetime.datetime.fromisoformat(alert["since"])})
            for alert in json.loads(alerts)
        )
    # A frozen dataclass sets each field by a call: 20 us a job, and as much as all the rest of it.
    # A field that is left out has its default, which is an attribute of the class.
    job = object.__new__(jobs.Job)
    vars(job).update(columns)
    return job


def _columns(changes: Mapping[str, object]) -> dict[str, object]:
    """Return columns for fields of jobs.Job; raises ValueError for one that never changes."""
    columns: dict[str, object] = {}
    for name, value in changes.items():
        match name, value:
            case "state", jobs.JobState():
                columns["state"] = value.value
            case "labels", tuple():
                columns["labels"] = json.dumps(value, ensure_ascii=False)
            case "alerts", tuple():
                columns["alerts"] = _alerts_text(value)
            case "submitter", None | jobs.Submitter():
                for column in _SUBMITTER_COLUMNS:
                    columns[column] = getattr(value, column.removeprefix("submitter_"), None)
            case _ if name in _PLAIN_FIELDS:
                columns[name] = value
            case _:
                raise ValueError(f"{name} of a job cannot be set to {value!r}")
    return columns


def _alerts_text(alerts: Sequence[jobs.Alert]) -> str | None:
    values = [{**vars(alert), "since": alert.since.isoformat()} for alert in alerts]
    return json.dumps(values, ensure_ascii=False) if values else None


def _unsettled(cluster: str) -> sa.Select[Any]:
    unsettled = (_JOB.settled.is_(False), _SUBMISSION.cluster == cluster)
    return queries.select_jobs().where(*unsettled).order_by(_JOB.row)


def _matching(query: jobs.JobQuery) -> sa.Select[Any]:
    statement = queries.select_jobs().where(*_conditions(query)).order_by(_JOB.row.desc())
    if query.whole_arrays and query.limit is not None:
        matching = statement.with_only_columns(_JOB.submission_id).order_by(None).distinct()
        newest = matching.order_by(_JOB.submission_id.desc()).limit(query.limit)
        return statement.where(_JOB.submission_id.in_(newest))
    return statement.limit(query.limit)


def _conditions(query: jobs.JobQuery) -> Iterator[sa.ColumnElement[bool]]:
    if query.rows:
        yield queries.among(_JOB.row, query.rows)
    if query.job_ids:
        columns = (_JOB.job_id, _JOB.raw_job_id, _JOB.array_job_id)
        yield _any_of(*(queries.among(column, query.job_ids) for column in columns))
    if query.names:
        yield queries.among(_SUBMISSION.name, query.names)
    for label in query.labels:
        yield dialects.holds(_JOB.labels, label)
    if query.sweeps or query.sweep_rows:
        point = models.SweepPoint
        newest = sa.select(point.job_row).where(queries.among(point.sweep_id, query.sweep_rows))
        yield _any_of(queries.among(_JOB.sweep, query.sweeps), _JOB.row.in_(newest))
    if query.states:
        yield _JOB.state.in_(query.states)
    if query.partitions:
        yield _JOB.partition.in_(query.partitions)
    if query.scheduler is not None:
        yield _SUBMISSION.scheduler == query.scheduler
    if query.live:
        yield _any_of(*_LIVE)
    if query.due is not None:
        yield _any_of(_LIVE[0], _JOB.resend_at <= query.due)
    if query.deferred:
        yield _LIVE[1]
    if query.tracked:
        yield _JOB.tracked_name.is_not(None)
    if query.unexplained_since is not None:
        yield _any_of(*_since(query.unexplained_since))
        yield _JOB.settled.is_(True)
        yield _JOB.cause.is_(None)
        yield _JOB.resend_at.is_(None)
        yield _JOB.state != "COMPLETED"
    if query.below is not None:
        yield _JOB.row < query.below
    if query.since is not None:
        yield _any_of(*_since(query.since))
    if query.live_or_since is not None:
        yield _any_of(*_since(query.live_or_since), *_LIVE)


def _since(since: datetime.datetime) -> tuple[sa.ColumnElement[bool], ...]:
    return _JOB.created_at >= since, _JOB.ended_at >= since


def _any_of(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    # One search by each index; with OR SQLite may read the whole table instead.
    return _JOB.row.in_(
        sa.union(*(sa.select(_JOB.row).where(condition) for condition in conditions))
    )
