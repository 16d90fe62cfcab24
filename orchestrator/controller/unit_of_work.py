"""The store as the verbs see it: transactions that speak in records.

A write transaction is short: no command of Slurm's and no log is read inside one.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa

from db import metrics, queries, replacing, series, settings, turns, usage
from orchestrator import errors
from orchestrator import jobs as records
from orchestrator.controller import parts, rows

#: The words that other modules ask and are answered in, without knowing the database.
JobQuery: TypeAlias = queries.JobQuery
MetricQuery: TypeAlias = series.MetricQuery
MetricRow: TypeAlias = series.MetricRow
Series: TypeAlias = series.Series
Held: TypeAlias = replacing.Held
Numbers: TypeAlias = metrics.Numbers
LogCursor: TypeAlias = rows.LogCursor
Task: TypeAlias = rows.Task
StoredMetric: TypeAlias = rows.StoredMetric
RefreshState: TypeAlias = rows.RefreshState


class UnitOfWork(parts.Parts):
    """One transaction. Inside `reading()` the database refuses changes."""

    def installation_id(self) -> str:
        """Return the four characters [a-z0-9] that begin every token of this database."""
        value = settings.get(self._db, "installation_id")
        if value is None:
            raise errors.DatabaseError("The database lacks its installation ID; restore a backup.")
        return value

    def add_submission(
        self,
        submission: records.Submission,
        *,
        array_tasks: Sequence[int] | None = None,
        labels: Sequence[str] = (),
        submitter: records.Submitter | None = None,
        state: records.JobState = records.JobState.SUBMITTING,
        **fields: object,
    ) -> list[records.Job]:
        """Store an intent: one job, or one for each array task; `fields` are those of jobs.Job."""
        changes = {"state": state, "labels": tuple(labels), "submitter": submitter, **fields}
        number = queries.add_submission(self._db, dict(vars(submission)))
        tasks = [None] if array_tasks is None else array_tasks
        return self._add_jobs(number, submission, tasks, changes)

    def add_tasks(
        self, token: str, array_tasks: Sequence[int], **fields: object
    ) -> list[records.Job]:
        """Store further tasks of a stored array; `fields` are those of jobs.Job."""
        row = queries.submission(self._db, token)
        assert row is not None, "submissions are never deleted"
        return self._add_jobs(row.id, row, array_tasks, fields)

    def _add_jobs(
        self,
        number: int,
        submission: records.Submission | sa.Row[Any],
        tasks: Sequence[int | None],
        changes: Mapping[str, object],
    ) -> list[records.Job]:
        new = rows.new_jobs(tasks, submission.created_at, changes)
        numbers = queries.add_jobs(self._db, number, new)
        return [
            rows.new_record(row, columns, submission)
            for row, columns in zip(numbers, new, strict=True)
        ]

    def submission(self, token: str) -> records.Submission | None:
        found = queries.submission(self._db, token)
        return None if found is None else rows.submission_record(found)

    def set_request_hash(self, token: str, sha256: str) -> None:
        """Store the hash of what the local runner is asked for."""
        queries.set_request_hash(self._db, token, sha256)

    def specs(self, tokens: Collection[str]) -> dict[str, str]:
        """Return the specs of these submissions, as JSON by token."""
        return queries.specs(self._db, tokens)

    def submission_of(self, row: int) -> records.Submission | None:
        """Return the submission of the job with this row number."""
        found = queries.submission_of(self._db, row)
        return None if found is None else rows.submission_record(found)

    def job(self, row: int) -> records.Job | None:
        found = queries.job(self._db, row)
        return None if found is None else rows.job_record(found)

    def live_jobs(self, cluster: str) -> list[records.Job]:
        """Return the jobs that are not settled, oldest first."""
        return rows.job_records(queries.live_jobs(self._db, cluster))

    def live_versions(self, cluster: str) -> list[tuple[int, int]]:
        """Return row and version of the jobs that are not settled, oldest first."""
        return turns.live_versions(self._db, cluster)

    def settled_after(
        self, place: tuple[datetime.datetime, int], ended_since: datetime.datetime, limit: int
    ) -> list[tuple[datetime.datetime, int]]:
        """Return when settled jobs were last seen, and their rows, in that order."""
        return turns.settled_after(self._db, place, ended_since, limit)

    def next_resend_at(self, after: datetime.datetime) -> datetime.datetime | None:
        """Return when the next of those that wait for room is due, later than `after`."""
        return turns.next_resend_at(self._db, after)

    def jobs(self, query: JobQuery) -> list[records.Job]:
        """Return the jobs that fit, newest first."""
        return rows.job_records(queries.jobs(self._db, query))

    def job_rows(self, query: JobQuery) -> list[int]:
        """Return the rows of the jobs that fit, newest first, also of those that are damaged."""
        return queries.job_rows(self._db, query)

    def jobs_of_tokens(self, tokens: Collection[str]) -> list[records.Job]:
        """Return the jobs of these submissions, oldest first."""
        return rows.job_records(queries.jobs_of_tokens(self._db, tokens))

    def newest_of_chains(self, found: Sequence[records.Job]) -> list[records.Job]:
        """Return in place of each of these jobs the last of those that go on with it."""
        last = self.recovery.last_in_chain([job.row for job in found])
        followers = [last[job.row] for job in found if last[job.row] != job.row]
        if not followers:
            return list(found)
        newest = {job.row: job for job in self.jobs(JobQuery(rows=followers, limit=None))}
        return [newest.get(last[job.row], job) for job in found]

    def tasks(self, token: str) -> list[rows.Task]:
        """Return a submission's jobs, the tasks of an array, oldest first."""
        return [rows.task_record(row) for row in queries.tasks(self._db, token)]

    def change_job(
        self, row: int, changes: Mapping[str, object], *, version: int | None = None
    ) -> bool:
        """Change fields of a job; false when there is no such job, or when it was changed since
        `version`, that of the record which the changes were made from (None: it does not matter).
        """
        return queries.change_job(self._db, row, rows.job_columns(changes), version)

    def change_jobs(
        self, changes: Sequence[tuple[int, Mapping[str, object], int | None]]
    ) -> set[int]:
        """Change fields of many jobs, each (row, fields, version) as in change_job.

        Returns the rows that were changed.
        """
        return queries.change_jobs(
            self._db,
            [(row, rows.job_columns(fields), version) for row, fields, version in changes],
        )

    def confirm_jobs(self, job_rows: Collection[int], at: datetime.datetime) -> None:
        """Store that these jobs were seen unchanged at that moment."""
        if job_rows:
            queries.confirm_jobs(self._db, job_rows, at)

    def put_attempts(self, attempts: Iterable[tuple[int, records.Attempt]]) -> None:
        """Store attempts, each with its job's row."""
        columns = [rows.attempt_columns(row, attempt) for row, attempt in attempts]
        queries.put_attempts(self._db, columns)

    def attempts(self, row: int) -> list[records.Attempt]:
        return self.attempts_of([row]).get(row, [])

    def attempts_of(self, job_rows: Collection[int]) -> dict[int, list[records.Attempt]]:
        """Return the attempts of many jobs by row, each job's oldest first."""
        found: dict[int, list[records.Attempt]] = {}
        for attempt in queries.attempts(self._db, job_rows):
            found.setdefault(attempt.job_row, []).append(rows.attempt_record(attempt))
        return found

    def started_attempts(
        self,
        job_rows: Collection[int],
        *,
        since: datetime.datetime | None,
        until: datetime.datetime | None,
    ) -> list[tuple[int, records.Attempt]]:
        """Return the starts of these jobs, each with its job's row, that lie between two moments.

        Of some the end is not known, or still to come.
        """
        found = usage.started_attempts(self._db, job_rows, since, until)
        return [(attempt.job_row, rows.attempt_record(attempt)) for attempt in found]

    def add_event(self, row: int, event: records.JobEvent) -> None:
        self.add_events([(row, event)])

    def add_events(self, events: Iterable[tuple[int, records.JobEvent]]) -> None:
        """Store events, each with its job's row."""
        queries.add_events(self._db, [rows.event_columns(row, event) for row, event in events])

    def asked_to_cancel(self, job_rows: Collection[int]) -> set[int]:
        """Return those of the jobs for which scancel was asked."""
        return queries.jobs_with_event(self._db, job_rows, "cancel")

    def events(self, row: int) -> list[records.JobEvent]:
        """Return the history of a job, oldest first."""
        return [rows.event_record(found) for found in queries.events(self._db, row)]

    def used_figures(self, row: int, attempt: int) -> str | None:
        """Return what `put_used_figures` stored of an attempt."""
        return usage.used_figures(self._db, row, attempt)

    def put_used_figures(self, row: int, attempt: int, figures: str) -> None:
        usage.put_used_figures(self._db, row, attempt, figures)

    def add_metrics(self, row: int, found: Sequence[records.Metric]) -> int:
        """Store metrics of a job; returns how many they are."""
        return self.add_numbers(row, rows.numbers_of(found))

    def add_numbers(self, row: int, found: Sequence[Numbers]) -> int:
        """Store the numbers of lines of a job; returns how many they are."""
        return metrics.add_numbers(self._db, row, found, _now())

    def metrics(self, query: MetricQuery) -> list[StoredMetric]:
        """Return metrics in the order of jobs, and in each of reading."""
        ids = series.ids(self._db, query)
        if not ids:
            return []
        owners = {job.row: job for job in self.jobs(JobQuery(rows=list(ids), limit=None))}
        paths = {cursor.id: cursor.path for cursor in metrics.log_cursors(self._db, list(ids))}
        return [
            StoredMetric(
                row=row.id,
                job=owners[row.job_row],
                metric=rows.metric_record(row, paths.get(row.log_id or 0)),
            )
            for mine in ids.values()
            for row in series.rows(self._db, mine)
        ]

    def series_of(self, job_rows: Iterable[int]) -> list[Series]:
        """Return what numbers there are of these jobs, by name, source and attempt."""
        return series.series(self._db, job_rows)

    def metric_ids(self, query: MetricQuery) -> dict[int, series.Ids]:
        """Return the numbers of the rows that are wanted, by job, in the order of reading."""
        return series.ids(self._db, query)

    def metric_rows(self, ids: Sequence[int]) -> list[MetricRow]:
        """Return these rows in the order of reading, less those that are not there any more."""
        return series.rows(self._db, ids)

    def held_numbers(self, row: int, path: str) -> Held:
        """Return what is stored of a file of this job."""
        return replacing.held(self._db, row, path)

    def drop_numbers(self, row: int, path: str) -> None:
        """Take out what is stored of a file of this job."""
        replacing.drop(self._db, row, path)

    def numbers_of_file(self, row: int, path: str) -> Iterable[list[Numbers]]:
        """Yield what is stored of a file of this job, part by part."""
        return replacing.lines(self._db, row, path)

    def log_cursors(self, row: int) -> list[LogCursor]:
        return self.log_cursors_of([row]).get(row, [])

    def log_cursors_of(self, job_rows: Collection[int]) -> dict[int, list[LogCursor]]:
        """Return the cursors of many jobs, by row."""
        found: dict[int, list[LogCursor]] = {}
        for cursor in metrics.log_cursors(self._db, job_rows):
            found.setdefault(cursor.job_row, []).append(rows.cursor_record(cursor))
        return found

    def put_log_cursor(self, row: int, cursor: LogCursor, *, expect: LogCursor | None) -> bool:
        """Move a cursor from `expect` (none: never read); false when another reader was faster.

        The metrics read on the way belong into the same transaction, after a true answer: then
        each is stored once, whatever reads or dies meanwhile.
        """
        now = _now()
        found = metrics.log_cursor(self._db, row, cursor.path, now)
        if rows.cursor_record(found) != (expect or LogCursor(path=cursor.path)):
            return False
        found.device, found.inode = str(cursor.device), str(cursor.inode)
        found.offset_bytes, found.line = cursor.offset_bytes, cursor.line
        found.carry, found.updated_at = cursor.carry, now
        self._db.flush()
        return True

    def refresh_state(self, cluster: str) -> RefreshState:
        found = queries.refresh(self._db, cluster)
        if found is None:
            return RefreshState(cluster=cluster)
        names = [field.name for field in dataclasses.fields(RefreshState)]
        return RefreshState(**{name: getattr(found, name) for name in names})

    def claim_refresh(
        self,
        cluster: str,
        now: datetime.datetime,
        floor_seconds: float,
        holder: str,
        *,
        claim_seconds: float = 120,
    ) -> bool:
        """Take the right to ask Slurm; false when somebody asks now or asked within the floor.

        The claim ends with finish_refresh, or by itself where the holder died.
        """
        return queries.claim_refresh(
            self._db,
            cluster,
            now=now,
            floor_seconds=floor_seconds,
            claim_seconds=claim_seconds,
            holder=holder,
        )

    def finish_refresh(
        self,
        cluster: str,
        *,
        holder: str,
        squeue_at: datetime.datetime | None = None,
        sacct_at: datetime.datetime | None = None,
        failed_at: datetime.datetime | None = None,
        error: str = "",
    ) -> None:
        """Give the holder's claim back; store the good answers' times, or why it failed."""
        queries.finish_refresh(
            self._db,
            cluster,
            holder=holder,
            squeue_at=squeue_at,
            sacct_at=sacct_at,
            failed_at=failed_at,
            error=error,
        )

    def setting(self, key: str) -> str | None:
        """Return what `put_setting` stored."""
        return settings.get(self._db, key)

    def put_setting(self, key: str, value: str) -> None:
        settings.put(self._db, key, value)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
