"""Lists of jobs for people: sorted and page by page, with array tasks folded in the database."""

from __future__ import annotations

import dataclasses
from typing import Any

import sqlalchemy as sa

from db.stores import base
from db.stores import jobs as job_store
from db.tables.jobs import JOBS, SUBMISSIONS
from orchestrator import jobs

_JOB = JOBS.c
_ORDER = {
    "submitted": _JOB.row,
    "name": SUBMISSIONS.c.name,
    "state": _JOB.state,
    "started": _JOB.started_at,
    "ended": _JOB.ended_at,
    "gpus": _JOB.gpus,
    "time_limit": _JOB.time_limit_seconds,
}
#: Tasks with the same values of these are one group.
_SAME = (_JOB.submission_id, _JOB.state, _JOB.reason, _JOB.exit_code)


class JobListStore(base.Store):
    """Pages of lists of jobs; an entry is a job, or the tasks of an array with the same state."""

    def tasks(
        self, query: jobs.JobQuery, *, order: str, descending: bool, offset: int
    ) -> list[jobs.JobGroup]:
        """Return the jobs that match as groups of one; the rest is as in groups()."""
        column = _ORDER[order]
        statement = (
            job_store.SELECT_JOBS.where(*job_store.conditions(query))
            .order_by(column.is_(None), column.desc() if descending else column)
            .order_by(_JOB.row.desc() if descending else _JOB.row)
            .limit(query.limit)
            .offset(offset)
        )
        return [
            jobs.JobGroup(
                first=job,
                last_row=job.row,
                count=1,
                first_task=job.array_task_id,
                last_task=job.array_task_id,
            )
            for job in job_store.records(self._rows(statement))
        ]

    def groups(
        self, query: jobs.JobQuery, *, order: str, descending: bool, offset: int
    ) -> list[jobs.JobGroup]:
        """Return the jobs that match, folded; `query.limit` and `offset` count submissions.

        order: one of jobs.ORDERS; a submission is sorted by its largest value, or if not
        `descending` by its smallest. Those without a value come last.
        """
        matching = job_store.SELECT_JOBS.where(*job_store.conditions(query))
        column = _ORDER[order]
        value = sa.func.max(column) if descending else sa.func.min(column)
        page = (
            matching.with_only_columns(_JOB.submission_id)
            .group_by(_JOB.submission_id)
            .order_by(value.is_(None), value.desc() if descending else value)
            .order_by(_JOB.submission_id.desc() if descending else _JOB.submission_id)
            .limit(query.limit)
            .offset(offset)
        )
        submissions = self._scalars(page)
        if not submissions:
            return []
        of_group = (sa.func.min(_JOB.row), sa.func.max(_JOB.row), sa.func.count())
        tasks = (sa.func.min(_JOB.array_task_id), sa.func.max(_JOB.array_task_id))
        statement = matching.where(base.among(_JOB.submission_id, submissions))
        statement = statement.with_only_columns(_JOB.submission_id, *of_group, *tasks)
        groups = self._rows(statement.group_by(*_SAME))
        return self._with_first_jobs(groups, submissions)

    def _with_first_jobs(self, groups: Any, submissions: list[int]) -> list[jobs.JobGroup]:
        rows = [first for _, first, *_ in groups]
        statement = job_store.SELECT_JOBS.where(base.among(_JOB.row, rows))
        by_row = {job.row: job for job in job_store.records(self._rows(statement))}
        position = {number: index for index, number in enumerate(submissions)}
        ordered = sorted(groups, key=lambda group: (position[group[0]], group[1]))
        return [
            jobs.JobGroup(
                first=by_row[first], last_row=last, count=count, first_task=low, last_task=high
            )
            for _, first, last, count, low, high in ordered
        ]

    def counts(self, query: jobs.JobQuery) -> dict[jobs.JobState, int]:
        """Return the number of matching jobs by state; `query.states` and limits are ignored."""
        any_state = dataclasses.replace(query, states=())
        matching = job_store.SELECT_JOBS.where(*job_store.conditions(any_state))
        counted = matching.with_only_columns(_JOB.state, sa.func.count()).group_by(_JOB.state)
        return self._pairs(counted)

    def number(self, query: jobs.JobQuery, *, is_folded: bool) -> int:
        """Return the number of matching submissions, or if not folded of matching jobs."""
        matching = job_store.SELECT_JOBS.where(*job_store.conditions(query))
        counted_column = _JOB.submission_id.distinct() if is_folded else _JOB.row
        counted = matching.with_only_columns(sa.func.count(counted_column))
        return self._scalar(int, counted) or 0
