"""Sweeps, their points and the jobs of those."""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, cast

import sqlalchemy as sa

from db.stores import base
from db.stores import jobs as job_store
from db.tables.jobs import JOBS
from db.tables.sweeps import SWEEP_POINTS, SWEEP_SHAPES, SWEEPS
from orchestrator import jobs
from orchestrator.jobs import JobState, naming
from orchestrator.sweeps import records

_SWEEP, _SHAPE, _POINT, _JOB = SWEEPS.c, SWEEP_SHAPES.c, SWEEP_POINTS.c, JOBS.c
_POINT_FIELDS = ("identity", "name", "repeat", "settings", "changes")
_SELECT_SWEEPS = base.select(SWEEPS, records.StoredSweep).add_columns(_SWEEP.spec)


class SweepStore(base.Store):
    def add(self, sweep: records.Sweep, **fields: object) -> records.StoredSweep:
        """Store a sweep and its points, none of them submitted.

        `fields` are those of StoredSweep that `sweep` does not have.
        """
        fields |= {"name": sweep.name, "kind": sweep.table.kind, "state": "open"}
        fields |= {"max_running": sweep.table.max_running, "spec": sweep.document}
        row = self._insert(SWEEPS, fields)
        self.add_points(row, sweep.points)
        return cast("records.StoredSweep", self.get(row))

    def add_points(self, row: int, points: Sequence[records.Point]) -> None:
        """Store new points. DatabaseError if one of them is stored already."""
        counted = sa.select(sa.func.count()).where(_POINT.sweep_id == row)
        first = (self._connection.scalar(counted) or 0) + 1
        shapes = {(shape.key, shape.spec): number for number, shape in self._shapes(row).items()}
        for point in points:
            shape = point.shape
            if (shape.key, shape.spec) not in shapes:
                values = {"sweep_id": row, "shape": shape.key, "spec": shape.spec}
                hours = {"gpu_hours": shape.gpu_hours, "node_hours": shape.node_hours}
                shapes[shape.key, shape.spec] = self._insert(SWEEP_SHAPES, {**values, **hours})
        self._insert_many(
            SWEEP_POINTS,
            [
                {
                    **{name: getattr(point, name) for name in _POINT_FIELDS},
                    "sweep_id": row,
                    "number": number,
                    "shape_id": shapes[point.shape.key, point.shape.spec],
                }
                for number, point in enumerate(points, first)
            ],
        )

    def find(self, reference: str) -> records.StoredSweep | None:
        """Return the sweep with the number `@3`, or the newest sweep with this name."""
        if reference.startswith("@"):
            row = naming.row_named(reference)
            return None if row is None else self.get(row)
        return next(iter(self.newest(name=reference, limit=1)), None)

    def get(self, row: int) -> records.StoredSweep | None:
        return next(iter(self._sweeps(_SELECT_SWEEPS.where(_SWEEP.id == row))), None)

    def newest(
        self, *, name: str | None = None, limit: int | None = None
    ) -> list[records.StoredSweep]:
        statement = _SELECT_SWEEPS.order_by(_SWEEP.id.desc()).limit(limit)
        return self._sweeps(statement if name is None else statement.where(_SWEEP.name == name))

    def _sweeps(self, statement: sa.Select[Any]) -> list[records.StoredSweep]:
        sweeps = []
        for row in self._rows(statement):
            fields = row._asdict()
            baseline_first = bool(fields.pop("spec").get("sweep", {}).get("baseline_first"))
            sweeps.append(records.StoredSweep(**fields, baseline_first=baseline_first))
        return sweeps

    def document(self, row: int) -> Mapping[str, Any]:
        """Return the spec file and the command line of a sweep, by table and key."""
        return self._scalar(dict, sa.select(_SWEEP.spec).where(_SWEEP.id == row)) or {}

    def shape_specs(self, row: int) -> dict[str, str]:
        """Return the jobs of the shapes of a sweep, as JSON by key."""
        return {shape.key: shape.spec for shape in self._shapes(row).values()}

    def _shapes(self, row: int) -> dict[int, records.Shape]:
        statement = base.select(SWEEP_SHAPES, records.Shape).where(_SHAPE.sweep_id == row)
        statement = statement.add_columns(_SHAPE.id, _SHAPE.shape.label("key"))
        shapes = [row._asdict() for row in self._rows(statement.order_by(_SHAPE.id))]
        return {fields.pop("id"): records.Shape(**fields) for fields in shapes}

    def identities(self, row: int) -> set[str]:
        return {*self._scalars(sa.select(_POINT.identity).where(_POINT.sweep_id == row))}

    def points(self, row: int) -> list[records.StoredPoint]:
        """Return the points of a sweep in their order, each with its newest job."""
        shapes, newest = self._shapes(row), {job.row: job for job in self.jobs(row)}
        statement = base.select(SWEEP_POINTS, records.StoredPoint)
        statement = statement.add_columns(_POINT.shape_id, _POINT.job_row)
        points = []
        for point in self._rows(statement.where(_POINT.sweep_id == row).order_by(_POINT.number)):
            fields = point._asdict()
            shape, job_row = shapes[fields.pop("shape_id")], fields.pop("job_row")
            job = None if job_row is None else newest[job_row]
            points.append(records.StoredPoint(**fields, shape=shape, job=job))
        return points

    def jobs(self, row: int) -> list[jobs.Job]:
        """Return the newest job of each point that has one, in the order of the points."""
        statement = job_store.SELECT_JOBS.join(SWEEP_POINTS, _POINT.job_row == _JOB.row)
        of_sweep = statement.where(_POINT.sweep_id == row).order_by(_POINT.number)
        return job_store.records(self._rows(of_sweep))

    def job_rows(self, row: int) -> dict[int, int | None]:
        """Return the row of the newest job of each point, by the number of the point."""
        statement = sa.select(_POINT.number, _POINT.job_row).where(_POINT.sweep_id == row)
        return self._pairs(statement.order_by(_POINT.number))

    def rows_of(self, job_rows: Collection[int]) -> list[int]:
        """Return the rows of the sweeps whose points have these jobs as their newest ones."""
        statement = sa.select(_POINT.sweep_id).distinct().order_by(_POINT.sweep_id)
        return self._scalars(statement.where(base.among(_POINT.job_row, job_rows)))

    def assign_jobs(self, row: int, points: Sequence[records.Point], new: Sequence[int]) -> bool:
        """Give points new jobs, by row.

        Belongs in the transaction that stores the jobs. False if the present job of a point is not
        the point's `job_row`: then that transaction must not be committed.
        """
        update = sa.update(SWEEP_POINTS).where(
            _POINT.sweep_id == row,
            _POINT.identity == sa.bindparam("this_point"),
            sa.func.coalesce(_POINT.job_row, 0) == sa.bindparam("this_job"),
        )
        values = [
            {"this_point": point.identity, "this_job": point.job_row or 0, "job_row": job_row}
            for point, job_row in zip(points, new, strict=True)
        ]
        return not values or self._changed(update, values) == len(values)

    def replace_jobs(self, changes: Sequence[tuple[int, int]]) -> None:
        """Give the points of old jobs the jobs that replace them, each (old row, new row)."""
        update = sa.update(SWEEP_POINTS).where(_POINT.job_row == sa.bindparam("this_job"))
        if changes:
            self._changed(update, [{"this_job": old, "job_row": new} for old, new in changes])

    def set_state(self, sweep: records.StoredSweep, state: Literal["open", "cancelled"]) -> bool:
        """Change the state; false if it is no longer that of `sweep`."""
        is_same = _SWEEP.id == sweep.row, _SWEEP.state == sweep.state
        return self._update(SWEEPS, {"state": state}, *is_same) == 1

    def groups(self, rows: Collection[int]) -> dict[int, list[records.PointGroup]]:
        """Count the points of these sweeps by state and reason; returns the groups by sweep."""
        reasons = (_JOB.state, _JOB.reason, _JOB.cause, _JOB.exit_code, _JOB.exit_signal)
        is_deferred = sa.and_(_JOB.state == "NOT_SUBMITTED", _JOB.resend_at.is_not(None))
        flags = {"is_deferred": is_deferred, "recovers": _JOB.recovers}
        columns = (
            *reasons,
            *(sa.func.coalesce(flag, sa.false()).label(name) for name, flag in flags.items()),
        )
        statement = (
            sa.select(_POINT.sweep_id, sa.func.count().label("points"), *columns)
            .select_from(SWEEP_POINTS)
            .outerjoin(JOBS, _POINT.job_row == _JOB.row)
            .where(base.among(_POINT.sweep_id, rows))
            .group_by(_POINT.sweep_id, *columns)
            .order_by(_POINT.sweep_id, sa.func.min(_POINT.number))
        )
        groups: dict[int, list[records.PointGroup]] = collections.defaultdict(list)
        for row in self._rows(statement):
            fields = row._asdict()
            groups[fields.pop("sweep_id")].append(records.PointGroup(**fields))
        return groups

    def totals(self, rows: Collection[int]) -> dict[int, records.ResourceTotals]:
        """Return the resources that all points request, by sweep."""
        without_limit = sa.func.count() - sa.func.count(_SHAPE.node_hours)
        statement = (
            sa.select(
                _POINT.sweep_id,
                sa.func.count().label("points"),
                sa.func.coalesce(sa.func.sum(_SHAPE.gpu_hours), 0.0).label("gpu_hours"),
                sa.func.coalesce(sa.func.sum(_SHAPE.node_hours), 0.0).label("node_hours"),
                without_limit.label("points_without_time_limit"),
            )
            .join(SWEEP_SHAPES, _SHAPE.id == _POINT.shape_id)
            .where(base.among(_POINT.sweep_id, rows))
            .group_by(_POINT.sweep_id)
        )
        totals: list[dict[str, Any]] = [row._asdict() for row in self._rows(statement)]
        return {fields.pop("sweep_id"): records.ResourceTotals(**fields) for fields in totals}

    def point_of(self, job_row: int) -> tuple[int, str] | None:
        """Return sweep and shape of the point whose newest job this is; None: no point's."""
        statement = (
            sa.select(_POINT.sweep_id, _SHAPE.shape)
            .join(SWEEP_SHAPES, _SHAPE.id == _POINT.shape_id)
            .where(_POINT.job_row == job_row)
        )
        point = self._connection.execute(statement).first()
        return None if point is None else (point.sweep_id, point.shape)

    def cancelled_sweep_of(self, job_row: int) -> records.StoredSweep | None:
        """Return the sweep of the point whose newest job this is, if the sweep is cancelled."""
        statement = _SELECT_SWEEPS.join(SWEEP_POINTS, _POINT.sweep_id == _SWEEP.id)
        of_job = statement.where(_POINT.job_row == job_row, _SWEEP.state == "cancelled")
        return next(iter(self._sweeps(of_job)), None)

    def live_submissions(self, row: int) -> list[tuple[str, int]]:
        """Return the submissions that have a job ID and have not ended, in the order of sending.

        Each with the ID of the job or of the whole array, and its number of unfinished tasks.
        """
        job_id = sa.func.coalesce(_JOB.array_job_id, _JOB.job_id)
        statement = (
            sa.select(sa.func.min(job_id).label("job_id"), sa.func.count().label("tasks"))
            .join(SWEEP_POINTS, _POINT.job_row == _JOB.row)
            .where(_POINT.sweep_id == row, _JOB.settled.is_(False), job_id.is_not(None))
            .group_by(_JOB.submission_id)
            .order_by(sa.func.min(_JOB.submitted_at), _JOB.submission_id)
        )
        return [(name, tasks) for name, tasks in self._rows(statement)]

    def baseline_groups(
        self, row: int, shapes: Collection[str]
    ) -> list[tuple[str | None, JobState | None, int]]:
        """Count the points of these shapes by job ID and state.

        The ID is that of the whole array, but those of its tasks if some tasks are no point's
        newest job any more; None: not in Slurm, or failed and may be recovered.
        """
        task, held = JOBS.alias("task").c, SWEEP_POINTS.alias("held").c
        ours = sa.select(_JOB.submission_id).join(SWEEP_POINTS, _POINT.job_row == _JOB.row)
        # For the whole sweep at once: for each row anew it takes seconds with thousands of points.
        partly = sa.select(task.submission_id).where(
            task.submission_id.in_(ours.where(_POINT.sweep_id == row)),
            task.row.not_in(sa.select(held.job_row).where(held.job_row.is_not(None))),
        )
        whole = sa.func.coalesce(_JOB.array_job_id, _JOB.job_id)
        ended = _JOB.state.in_(jobs.TERMINAL)
        may_continue = sa.and_(_JOB.recovers.is_(True), ended, _JOB.state != "COMPLETED")
        # Slurm treats a dependency on a purged job as satisfied, however the job ended.
        not_shown = sa.and_(_JOB.missing_since.is_not(None), sa.not_(ended))
        job_id = sa.case(
            (sa.or_(may_continue, not_shown), sa.null()),
            (_JOB.submission_id.in_(partly), _JOB.job_id),
            else_=whole,
        )
        statement = (
            sa.select(job_id.label("whose"), _JOB.state, sa.func.count().label("points"))
            .select_from(SWEEP_POINTS)
            .join(SWEEP_SHAPES, _SHAPE.id == _POINT.shape_id)
            .outerjoin(JOBS, _POINT.job_row == _JOB.row)
            .where(_POINT.sweep_id == row, base.among(_SHAPE.shape, shapes))
            # By its label: PostgreSQL takes an expression with bound values for two expressions.
            .group_by("whose", _JOB.state)
            .order_by(sa.func.min(_POINT.number))
        )
        return [(job_id, state, points) for job_id, state, points in self._rows(statement)]
