"""Totals that never decrease, for monitoring: also of jobs whose rows were pruned."""

from __future__ import annotations

import collections
import datetime
import json
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from db.stores import base, settings
from db.tables.jobs import ATTEMPTS, JOBS
from db.tables.service import DELIVERIES, NOTICES, RECOVERIES

_JOB, _ATTEMPT, _RECOVERY = JOBS.c, ATTEMPTS.c, RECOVERIES.c
#: Setting with the totals of jobs that were pruned.
_KEY = "pruned_totals"
#: What is counted, and the value of its label; "": it has none.
Key = tuple[str, str]


class MonitoringStore(base.Store):
    def totals(self) -> dict[Key, float]:
        """Return totals over all jobs that there ever were.

        attempts: ended attempts by state. gpu_seconds, queue_wait_seconds, queue_waits: of these
        attempts. retries: by action.
        """
        return _sum(self._of_pruned(), self._of_stored())

    def keep_totals(self, job_rows: Collection[int]) -> None:
        """Keep the totals of jobs that are about to be deleted."""
        kept = _sum(self._of_pruned(), self._of_stored(job_rows))
        text = json.dumps([[*key, value] for key, value in sorted(kept.items())])
        settings.SettingStore(self._connection).put(_KEY, text)

    def running_gpus(self) -> int:
        """Return the number of GPUs of running jobs."""
        is_running = _JOB.state == "RUNNING", _JOB.settled.is_(False)
        return self._scalar(int, sa.select(sa.func.sum(_JOB.gpus)).where(*is_running)) or 0

    def oldest_pending_at(self) -> datetime.datetime | None:
        """Return when the job was submitted that has been pending for the longest time."""
        is_pending = _JOB.state == "PENDING", _JOB.settled.is_(False)
        oldest = sa.select(sa.func.min(_JOB.submitted_at)).where(*is_pending)
        return self._scalar(datetime.datetime, oldest)

    def last_failure_at(self, states: Collection[str]) -> datetime.datetime | None:
        """Return when the last job ended in one of these states."""
        has_failed = _JOB.state.in_(states)
        return self._scalar(
            datetime.datetime, sa.select(sa.func.max(_JOB.ended_at)).where(has_failed)
        )

    def notices(self) -> dict[str, int]:
        """Return the number of notices by kind; they are never deleted."""
        kind = NOTICES.c.kind
        return self._pairs(sa.select(kind, sa.func.count()).group_by(kind))

    def deliveries(self) -> dict[str, int]:
        """Return the number of notices that are not sent, by the state of their delivery."""
        state = DELIVERIES.c.state
        statement = sa.select(state, sa.func.count()).group_by(state).where(state != "sent")
        return self._pairs(statement)

    def _of_pruned(self) -> Mapping[Key, float]:
        text = settings.SettingStore(self._connection).get(_KEY)
        return {(name, label): value for name, label, value in json.loads(text or "[]")}

    def _of_stored(self, job_rows: Collection[int] | None = None) -> dict[Key, float]:
        selected = [] if job_rows is None else [base.among(_JOB.row, job_rows)]
        # Until then sacct may correct states and times, and a total would decrease.
        is_final = sa.or_(_JOB.settled.is_(True), _ATTEMPT.number < _JOB.attempt)
        started, submitted = map(_seconds, (_ATTEMPT.started_at, _ATTEMPT.submitted_at))
        used = _JOB.gpus * (_seconds(_ATTEMPT.ended_at) - started)
        statement = (
            sa.select(
                *(_ATTEMPT.state, sa.func.count(), sa.func.sum(used)),
                *(sa.func.sum(started - submitted), sa.func.count(started - submitted)),
            )
            .join_from(ATTEMPTS, JOBS, _JOB.row == _ATTEMPT.job_row)
            .where(_ATTEMPT.ended_at.is_not(None), is_final, *selected)
            .group_by(_ATTEMPT.state)
        )
        totals: dict[Key, float] = collections.defaultdict(float)
        for state, count, gpu_seconds, wait_seconds, waits in self._rows(statement):
            totals["attempts", str(state)] += count
            # The clocks of the hosts may differ.
            totals["gpu_seconds", ""] += max(0.0, float(gpu_seconds or 0))
            totals["queue_wait_seconds", ""] += max(0.0, float(wait_seconds or 0))
            totals["queue_waits", ""] += waits
        retries = (
            sa.select(_RECOVERY.action, sa.func.count())
            .join_from(RECOVERIES, JOBS, _JOB.row == _RECOVERY.job_row)
            .where(_RECOVERY.state == "done", _RECOVERY.action != "none", *selected)
            .group_by(_RECOVERY.action)
        )
        for action, count in self._rows(retries):
            totals["retries", str(action)] += count
        return totals


def _sum(*parts: Mapping[Key, float]) -> dict[Key, float]:
    keys = {key for part in parts for key in part}
    return {key: sum(part.get(key, 0.0) for part in parts) for key in sorted(keys)}


def _seconds(time: sa.ColumnElement[datetime.datetime]) -> sa.ColumnElement[int]:
    return sa.extract("epoch", time)
