"""Submissions and their jobs, with the attempts and the history of each job."""

from __future__ import annotations

import datetime
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import ATTEMPTS, JOB_EVENTS, JOBS, SUBMISSIONS, USED_FIGURES
from db.tables.sweeps import SWEEP_POINTS
from orchestrator import jobs

_JOB, _SUBMISSION = JOBS.c, SUBMISSIONS.c
_ATTEMPT, _USED, _EVENT = ATTEMPTS.c, USED_FIGURES.c, JOB_EVENTS.c
#: Columns of the submission that identify its jobs to people.
_OF_SUBMISSION = ("token", "cluster", "scheduler", "name", "run_dir")
#: All columns of jobs, with _OF_SUBMISSION; `records` converts the rows.
SELECT_JOBS = sa.select(JOBS, *(_SUBMISSION[name] for name in _OF_SUBMISSION)).join_from(
    JOBS, SUBMISSIONS
)
_SELECT_SUBMISSIONS = base.select(SUBMISSIONS, jobs.Submission)
_SELECT_TASKS = base.select(JOBS, jobs.Task).join(SUBMISSIONS)
_SELECT_EVENTS = base.select(JOB_EVENTS, jobs.JobEvent)
_IS_LIVE, _IS_DEFERRED = _JOB.settled.is_(False), _JOB.resend_at.is_not(None)
_UPDATE_JOB = (
    sa.update(JOBS).where(_JOB.row == sa.bindparam("this_row")).values(version=_JOB.version + 1)
)
_SUBMITTER_FIELDS = ("host", "boot_id", "pid", "start_ticks")
#: Columns that are fields of a job.
_CHANGEABLE = {*_JOB.keys()} - {"row", "submission_id", "array_task", "created_at", "version"}
_COUNTS = ("attempt", "restart_count", "misses", "refusals", "version")


class JobStore(base.Store):
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
        number = self._insert(SUBMISSIONS, vars(submission))
        tasks = [None] if array_tasks is None else array_tasks
        return self._add_jobs(number, submission, tasks, fields)

    def add_tasks(self, token: str, array_tasks: Sequence[int], **fields: object) -> list[jobs.Job]:
        """Store more tasks of a stored array; `fields` are those of jobs.Job."""
        statement = sa.select(SUBMISSIONS).where(_SUBMISSION.token == token)
        submission = self._connection.execute(statement).one()
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
        self._insert_many(JOBS, new)
        statement = sa.select(_JOB.array_task, _JOB.row).where(_JOB.submission_id == number)
        rows = self._pairs(statement)
        shared: dict[str, Any] = {
            **{name: getattr(submission, name) for name in _OF_SUBMISSION},
            "created_at": submission.created_at,
            **fields,
        }
        return [jobs.Job(row=rows[task or 0], array_task_id=task, **shared) for task in tasks]

    def submission(self, token: str) -> jobs.Submission | None:
        statement = _SELECT_SUBMISSIONS.where(_SUBMISSION.token == token)
        return self._first(jobs.Submission, statement)

    def submission_of(self, row: int) -> jobs.Submission:
        (submission,) = self._records(
            jobs.Submission, _SELECT_SUBMISSIONS.join(JOBS).where(_JOB.row == row)
        )
        return submission

    def specs(self, tokens: Collection[str]) -> dict[str, str]:
        """Return the specs of these submissions, as JSON by token."""
        statement = sa.select(_SUBMISSION.token, _SUBMISSION.spec)
        return self._pairs(statement.where(base.among(_SUBMISSION.token, tokens)))

    def set_request_hash(self, token: str, sha256: str) -> None:
        """Store the hash of the request to the local runner."""
        self._update(SUBMISSIONS, {"request_sha256": sha256}, _SUBMISSION.token == token)

    def get(self, row: int) -> jobs.Job | None:
        return next(iter(records(self._rows(SELECT_JOBS.where(_JOB.row == row)))), None)

    def find(self, query: jobs.JobQuery) -> list[jobs.Job]:
        """Return the jobs that match, newest first."""
        return records(self._rows(_matching(query)))

    def by_row(self, rows: Collection[int]) -> dict[int, jobs.Job]:
        if not rows:
            return {}
        return {job.row: job for job in self.find(jobs.JobQuery(rows=list(rows), limit=None))}

    def find_rows(self, query: jobs.JobQuery) -> list[int]:
        """Return the rows of the jobs that match, newest first, including damaged ones."""
        return self._scalars(_matching(query).with_only_columns(_JOB.row))

    def of_submissions(self, tokens: Collection[str]) -> list[jobs.Job]:
        """Return the jobs of these submissions, oldest first."""
        statement = SELECT_JOBS.where(base.among(_SUBMISSION.token, tokens))
        return records(self._rows(statement.order_by(_JOB.row)))

    def tasks(self, token: str) -> list[jobs.Task]:
        """Return the jobs of a submission (the tasks of an array), oldest first."""
        of_token = _SELECT_TASKS.where(_SUBMISSION.token == token)
        return self._records(jobs.Task, of_token.order_by(_JOB.row))

    def live(
        self, cluster: str, known: Mapping[int, jobs.Job] = types.MappingProxyType({})
    ) -> list[jobs.Job]:
        """Return the jobs that are not settled, oldest first.

        known: jobs by row, which are read again only if they have changed. Their `observed_at` may
        be older than the stored one.
        """
        live = SELECT_JOBS.where(_IS_LIVE, _SUBMISSION.cluster == cluster)
        same: dict[int, jobs.Job] = {}
        if known:
            versions = self._pairs(live.with_only_columns(_JOB.row, _JOB.version))
            same = {
                row: known[row]
                for row, version in versions.items()
                if row in known and known[row].version == version
            }
        read = records(self._rows(live.where(sa.not_(base.among(_JOB.row, same.keys())))))
        return sorted([*read, *same.values()], key=lambda job: job.row)

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
        return [(at, row) for at, row in self._rows(statement)]

    def next_resend_at(self, after: datetime.datetime) -> datetime.datetime | None:
        """Return the first time later than `after` at which a deferred job is submitted again."""
        statement = sa.select(sa.func.min(_JOB.resend_at)).where(_JOB.resend_at > after)
        return self._scalar(datetime.datetime, statement)

    def change(
        self, row: int, changes: Mapping[str, object], *, version: int | None = None
    ) -> bool:
        """Change fields of a job.

        Return False if the job has changed since it had this version, that of the record that the
        changes are based on.
        """
        return bool(self.change_many([(row, changes, version)]))

    def change_many(
        self, changes: Sequence[tuple[int, Mapping[str, object], int | None]]
    ) -> set[int]:
        """Change fields of many jobs, each (row, fields, version) as in `change`.

        Return the rows that were changed. Needs a write transaction: no other process writes
        between the check of the versions and the change.
        """
        checked = [row for row, _, version in changes if version is not None]
        statement = sa.select(_JOB.row, _JOB.version).where(base.among(_JOB.row, checked))
        versions = self._pairs(statement) if checked else {}
        by_columns: dict[frozenset[str], list[dict[str, object]]] = {}
        changed: set[int] = set()
        for row, fields, version in changes:
            columns = _columns(fields)
            if row in changed or version not in (None, versions.get(row)):
                continue
            changed.add(row)
            by_columns.setdefault(frozenset(columns), []).append({**columns, "this_row": row})
        for same_columns in by_columns.values():
            self._connection.execute(_UPDATE_JOB, same_columns)
        return changed

    def confirm(self, rows: Collection[int], at: datetime.datetime) -> None:
        """Store that these jobs were observed unchanged at this time; a later time stays."""
        is_older = sa.or_(_JOB.observed_at.is_(None), _JOB.observed_at < at)
        self._update(JOBS, {"observed_at": at}, base.among(_JOB.row, rows), is_older)


class AttemptStore(base.Store):
    def put(self, attempts: Iterable[tuple[int, jobs.Attempt]]) -> None:
        """Store attempts, each with its job's row; one with the same number is replaced."""
        self._put(ATTEMPTS, ({"job_row": row, **vars(attempt)} for row, attempt in attempts))

    def of_job(self, row: int) -> list[jobs.Attempt]:
        """Return the attempts of a job, oldest first."""
        return self.of_jobs([row]).get(row, [])

    def of_jobs(self, rows: Collection[int]) -> dict[int, list[jobs.Attempt]]:
        """Return the attempts of many jobs by row, each job's oldest first."""
        statement = sa.select(ATTEMPTS).where(base.among(_ATTEMPT.job_row, rows))
        attempts: dict[int, list[jobs.Attempt]] = {}
        for row in self._rows(statement.order_by(_ATTEMPT.job_row, _ATTEMPT.number)):
            fields = row._asdict()
            attempts.setdefault(fields.pop("job_row"), []).append(jobs.Attempt(**fields))
        return attempts

    def used_figures(self, row: int, attempt: int) -> str | None:
        is_attempt = _USED.job_row == row, _USED.attempt == attempt
        return self._connection.scalar(sa.select(_USED.figures).where(*is_attempt))

    def put_used_figures(self, row: int, attempt: int, figures: str) -> None:
        """Store what an attempt used, as JSON."""
        self._put(USED_FIGURES, [{"job_row": row, "attempt": attempt, "figures": figures}])


class EventStore(base.Store):
    """The history of jobs within one transaction. Events are never changed."""

    def add(self, row: int, event: jobs.JobEvent) -> None:
        self.add_many([(row, event)])

    def add_many(self, events: Iterable[tuple[int, jobs.JobEvent]]) -> None:
        self._insert_many(JOB_EVENTS, [{"job_row": row, **vars(event)} for row, event in events])

    def of_job(self, row: int) -> list[jobs.JobEvent]:
        """Return the history of a job, oldest first."""
        statement = _SELECT_EVENTS.where(_EVENT.job_row == row).order_by(_EVENT.id)
        return self._records(jobs.JobEvent, statement)

    def jobs_of(self, source: str, limit: int) -> list[int]:
        """Return the rows of jobs that have events from this source, the first ones."""
        statement = sa.select(_EVENT.job_row).where(_EVENT.source == source).distinct()
        return [row for (row,) in self._rows(statement.order_by(_EVENT.job_row).limit(limit))]

    def newest(self) -> int:
        """Return the row of the newest event, 0 if there is none."""
        return self._connection.scalar(sa.select(sa.func.max(_EVENT.id))) or 0

    def after(self, row: int, limit: int) -> list[tuple[int, int, jobs.JobEvent]]:
        """Return the next events after this one, oldest first, each with its and its job's row."""
        statement = _SELECT_EVENTS.add_columns(_EVENT.id, _EVENT.job_row).where(_EVENT.id > row)
        rows = [row._asdict() for row in self._rows(statement.order_by(_EVENT.id).limit(limit))]
        return [(row.pop("id"), row.pop("job_row"), jobs.JobEvent(**row)) for row in rows]

    def cause(self, job_row: int, attempt: int) -> str:
        """Return the failure cause of an attempt: "CAUSE: a sentence"; "" if there is none."""
        statement = sa.select(_EVENT.detail).where(
            _EVENT.job_row == job_row, _EVENT.attempt == attempt, _EVENT.kind == "cause"
        )
        return self._connection.scalar(statement.order_by(_EVENT.id.desc()).limit(1)) or ""

    def cancel_requested(self, rows: Collection[int]) -> set[int]:
        """Return those of the jobs whose newest attempt orchestrator was asked to cancel."""
        return {*self.first("cancel", rows)}

    def first(self, kind: str, rows: Collection[int]) -> dict[int, datetime.datetime]:
        """Return by row the time of the first event of a kind in the newest attempt."""
        statement = (
            sa.select(_EVENT.job_row, sa.func.min(_EVENT.at))
            .join(JOBS, JOBS.c.row == _EVENT.job_row)
            .where(base.among(_EVENT.job_row, rows), _EVENT.kind == kind)
            .where(_EVENT.attempt == JOBS.c.attempt)
            .group_by(_EVENT.job_row)
        )
        return self._pairs(statement)


def records(rows: Sequence[sa.Row[Any]]) -> list[jobs.Job]:
    """Return the jobs of rows with the columns of SELECT_JOBS."""
    return [_record(dict(row._mapping)) for row in rows]


def _record(columns: dict[str, Any]) -> jobs.Job:
    for name in ("submission_id", "array_task"):
        columns.pop(name)
    submitter = {name: columns.pop(f"submitter_{name}") for name in _SUBMITTER_FIELDS}
    columns["submitter"] = jobs.Submitter(**submitter) if submitter["host"] else None
    return jobs.Job(**columns)


def _columns(fields: Mapping[str, object]) -> dict[str, object]:
    """Return columns for fields of jobs.Job; raises ValueError for a field that never changes."""
    columns = dict(fields)
    if "submitter" in columns:
        submitter = columns.pop("submitter")
        for name in _SUBMITTER_FIELDS:
            columns[f"submitter_{name}"] = getattr(submitter, name, None)
    if constant := columns.keys() - _CHANGEABLE:
        raise ValueError(f"these fields of a job cannot be changed: {sorted(constant)}")
    return columns


def _matching(query: jobs.JobQuery) -> sa.Select[Any]:
    statement = SELECT_JOBS.where(*conditions(query)).order_by(_JOB.row.desc())
    if query.whole_arrays and query.limit is not None:
        matching = statement.with_only_columns(_JOB.submission_id).order_by(None).distinct()
        newest = matching.order_by(_JOB.submission_id.desc()).limit(query.limit)
        return statement.where(_JOB.submission_id.in_(newest))
    return statement.limit(query.limit)


def conditions(query: jobs.JobQuery) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions of a query on the columns of SELECT_JOBS."""
    if query.rows:
        yield base.among(_JOB.row, query.rows)
    if query.job_ids:
        columns = (_JOB.job_id, _JOB.raw_job_id, _JOB.array_job_id)
        yield _any_of(*(base.among(column, query.job_ids) for column in columns))
    if query.names:
        yield base.among(_SUBMISSION.name, query.names)
    yield from map(_has_word, query.words)
    for label in query.labels:
        yield base.has_label(_JOB.labels, label)
    if query.sweeps or query.sweep_rows:
        point = SWEEP_POINTS.c
        newest = sa.select(point.job_row).where(base.among(point.sweep_id, query.sweep_rows))
        yield _any_of(base.among(_JOB.sweep, query.sweeps), _JOB.row.in_(newest))
    if query.states:
        yield _JOB.state.in_(query.states)
    if query.partitions:
        yield _JOB.partition.in_(query.partitions)
    if query.cluster is not None:
        yield _SUBMISSION.cluster == query.cluster
    if query.scheduler is not None:
        yield _SUBMISSION.scheduler == query.scheduler
    if query.live:
        yield _any_of(_IS_LIVE, _IS_DEFERRED)
    if query.due is not None:
        yield _any_of(_IS_LIVE, _JOB.resend_at <= query.due)
    if query.deferred:
        yield _IS_DEFERRED
    if query.tracked:
        yield _JOB.tracked_name.is_not(None)
    if query.settled or query.unexplained_since is not None:
        yield _JOB.settled.is_(True)
    if query.unexplained_since is not None:
        yield _any_of(*_since(query.unexplained_since))
        yield _JOB.cause.is_(None)
        yield _JOB.resend_at.is_(None)
        yield _JOB.state != "COMPLETED"
    if query.below is not None:
        yield _JOB.row < query.below
    if query.since is not None:
        yield _any_of(*_since(query.since))
    if query.live_or_since is not None:
        yield _any_of(*_since(query.live_or_since), _IS_LIVE, _IS_DEFERRED)


def _has_word(word: str) -> sa.ColumnElement[bool]:
    if word.startswith("@") and word[1:].isdecimal() and len(word) < 19:
        return _JOB.row == int(word[1:])
    texts = (_SUBMISSION.name, _JOB.sweep, _JOB.node_list, sa.type_coerce(_JOB.labels, sa.Text()))
    words = (_JOB.job_id, _JOB.array_job_id, _JOB.partition)
    return sa.or_(
        *(column.icontains(word, autoescape=True) for column in texts),
        *(column == word for column in words),
    )


def _since(since: datetime.datetime) -> tuple[sa.ColumnElement[bool], ...]:
    return _JOB.created_at >= since, _JOB.ended_at >= since


def _any_of(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    # One search by each index; with OR SQLite may read the whole table instead.
    return _JOB.row.in_(
        sa.union(*(sa.select(_JOB.row).where(condition) for condition in conditions))
    )
