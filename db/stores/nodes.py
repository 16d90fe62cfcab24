"""How attempts ended on nodes, and the repeats of sweeps that ran on them."""

from __future__ import annotations

import datetime
from typing import Any

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import ATTEMPTS, JOB_EVENTS, JOBS, SUBMISSIONS
from db.tables.sweeps import SWEEP_POINTS
from orchestrator.nodes import records

_JOB, _ATTEMPT, _EVENT, _POINT = JOBS.c, ATTEMPTS.c, JOB_EVENTS.c, SWEEP_POINTS.c
_CLUSTER, _SCHEDULER = SUBMISSIONS.c.cluster, SUBMISSIONS.c.scheduler
#: Slurm may not report when an attempt ended that it requeued.
_AT = sa.func.coalesce(_ATTEMPT.ended_at, _ATTEMPT.started_at, type_=_ATTEMPT.ended_at.type)
_IS_COMPLETED = _ATTEMPT.state == "COMPLETED"


class NodeStore(base.Store):
    def ends(self, since: datetime.datetime) -> list[records.End]:
        """Return how attempts ended in Slurm since then; those that completed as one by nodes."""
        finding = (
            sa.select(_EVENT.detail)
            .where(_EVENT.job_row == _ATTEMPT.job_row, _EVENT.attempt == _ATTEMPT.number)
            .where(_EVENT.kind == "cause", ~_IS_COMPLETED)
            .order_by(_EVENT.id.desc())
            .limit(1)
            .scalar_subquery()
        )
        # Each failure has a time of its own.
        failed = sa.case((~_IS_COMPLETED, _ATTEMPT.job_row)), sa.case((~_IS_COMPLETED, _AT))
        name = sa.func.coalesce(_JOB.sweep, SUBMISSIONS.c.name)
        statement = (
            sa.select(
                _CLUSTER,
                _ATTEMPT.node_list,
                name.label("name"),
                _ATTEMPT.state,
                sa.func.max(finding).label("finding"),
                sa.func.max(_AT).label("at"),
                sa.func.max(_ATTEMPT.job_row).label("job_row"),
                sa.func.count().label("count"),
            )
            .join_from(ATTEMPTS, JOBS, _JOB.row == _ATTEMPT.job_row)
            .join(SUBMISSIONS, SUBMISSIONS.c.id == _JOB.submission_id)
            .where(_SCHEDULER == "slurm", _ATTEMPT.node_list.is_not(None), _AT >= since)
            .where(sa.or_(_ATTEMPT.number < _JOB.attempt, _JOB.settled.is_(True)))
            .group_by(_CLUSTER, _ATTEMPT.node_list, name, _ATTEMPT.state, *failed)
        )
        return self._records(records.End, statement)

    def stragglers(self, since: datetime.datetime) -> list[records.Straggler]:
        """Return the attempts with alerts about a slow rank since then, each once."""
        statement = (
            sa.select(
                _CLUSTER,
                _ATTEMPT.node_list,
                sa.func.max(_EVENT.detail).label("sentence"),
                sa.func.max(_EVENT.at).label("at"),
                _ATTEMPT.job_row,
            )
            .join_from(JOB_EVENTS, JOBS, _JOB.row == _EVENT.job_row)
            .join(SUBMISSIONS, SUBMISSIONS.c.id == _JOB.submission_id)
            .join(
                ATTEMPTS,
                sa.and_(_ATTEMPT.job_row == _EVENT.job_row, _ATTEMPT.number == _EVENT.attempt),
            )
            .where(_EVENT.kind == "alert", _EVENT.detail.startswith("straggler: "))
            .where(_SCHEDULER == "slurm", _EVENT.at >= since, _ATTEMPT.node_list.is_not(None))
            .group_by(_CLUSTER, _ATTEMPT.node_list, _ATTEMPT.job_row, _ATTEMPT.number)
        )
        return self._records(records.Straggler, statement)

    def repeats(self, since: datetime.datetime, limit: int) -> list[dict[str, Any]]:
        """Return completed jobs of sweeps that repeat their points, the newest first.

        Each: cluster, node_list, key, at and job_row of records.Repeat, and the attempt.
        """
        repeated = sa.select(_POINT.sweep_id).where(_POINT.repeat > 1)
        statement = (
            sa.select(
                *(_CLUSTER, _JOB.node_list, _POINT.sweep_id, _POINT.changes),
                *(_JOB.ended_at, _JOB.row, _JOB.attempt),
            )
            .join_from(JOBS, SWEEP_POINTS, _POINT.job_row == _JOB.row)
            .join(SUBMISSIONS, SUBMISSIONS.c.id == _JOB.submission_id)
            .where(_SCHEDULER == "slurm", _JOB.state == "COMPLETED", _JOB.ended_at >= since)
            .where(_JOB.node_list.is_not(None), _POINT.sweep_id.in_(repeated))
            .order_by(_JOB.row.desc())
            .limit(limit)
        )
        return [
            {
                "cluster": cluster,
                "node_list": node_list,
                "key": (sweep, *sorted((key, str(value)) for key, value in changes.items())),
                "at": at,
                "job_row": row,
                "attempt": attempt,
            }
            for cluster, node_list, sweep, changes, at, row, attempt in self._rows(statement)
        ]
