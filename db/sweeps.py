"""Sweeps and their points. None of these commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy import orm

from db import models, queries

#: What is counted together: sweep, state, reason, cause, exit code and signal, waits for room.
Group: TypeAlias = tuple[int, str | None, str | None, str | None, int | None, int | None, bool]
_WAITS = sa.and_(models.Job.state == "NOT_SUBMITTED", models.Job.resend_at.is_not(None))


def add(
    session: orm.Session,
    sweep: models.Sweep,
    shapes: Sequence[models.SweepShape],
    points: Sequence[Mapping[str, Any]],
) -> None:
    """Store a new sweep; the points are columns, with `shape` a place in `shapes`."""
    session.add(sweep)
    session.flush()
    add_points(session, sweep.id, shapes, points)


def add_points(
    session: orm.Session,
    sweep_id: int,
    shapes: Sequence[models.SweepShape],
    points: Sequence[Mapping[str, Any]],
) -> None:
    """Store further points of a stored sweep; a shape may be one that is stored already."""
    for shape in shapes:
        if shape.id is None:
            shape.sweep_id = sweep_id
            session.add(shape)
    session.flush()
    rows: list[dict[str, Any]] = []
    for point in points:
        row = {"job_row": None, **point, "sweep_id": sweep_id}
        rows.append({**row, "shape_id": shapes[row.pop("shape")].id})
    if rows:
        session.connection().execute(sa.insert(models.SweepPoint.__table__), rows)  # type: ignore[arg-type]


def sweep(session: orm.Session, sweep_id: int) -> models.Sweep | None:
    return session.get(models.Sweep, sweep_id)


def sweeps(
    session: orm.Session, *, name: str | None = None, limit: int | None = None
) -> Sequence[models.Sweep]:
    """Return sweeps, newest first."""
    statement = sa.select(models.Sweep).order_by(models.Sweep.id.desc()).limit(limit)
    if name is not None:
        statement = statement.where(models.Sweep.name == name)
    return session.scalars(statement).all()


def spec(session: orm.Session, sweep_id: int) -> str | None:
    return session.scalar(sa.select(models.Sweep.spec).where(models.Sweep.id == sweep_id))


def shapes(session: orm.Session, sweep_id: int) -> Sequence[models.SweepShape]:
    """Return the shapes of a sweep, oldest first."""
    statement = sa.select(models.SweepShape).where(models.SweepShape.sweep_id == sweep_id)
    return session.scalars(statement.order_by(models.SweepShape.id)).all()


def points(
    session: orm.Session, sweep_id: int, *, job_rows: Collection[int] | None = None
) -> Sequence[models.SweepPoint]:
    """Return the points of a sweep in their order; `job_rows`: only those with these jobs."""
    point = models.SweepPoint
    statement = sa.select(point).where(point.sweep_id == sweep_id)
    if job_rows is not None:
        statement = statement.where(queries.among(point.job_row, job_rows))
    return session.scalars(statement.order_by(point.number)).all()


def identities(session: orm.Session, sweep_id: int) -> set[str]:
    """Return the identities of all points of a sweep."""
    point = models.SweepPoint
    return set(session.scalars(sa.select(point.identity).where(point.sweep_id == sweep_id)))


def jobs(session: orm.Session, sweep_id: int) -> Sequence[sa.Row[Any]]:
    """Return the newest job of each point that has one, in the order of the points."""
    job, point = models.Job, models.SweepPoint
    statement = queries.select_jobs().join(point, point.job_row == job.row)
    found = session.execute(statement.where(point.sweep_id == sweep_id).order_by(point.number))
    return found.all()


def bind(session: orm.Session, sweep_id: int, moves: Sequence[tuple[int, int | None, int]]) -> bool:
    """Give points a job, each (number, the job it has or none, the new one).

    False where a point has another job by now: then nothing may be committed.
    """
    table = models.SweepPoint.__table__
    update = sa.update(table).where(  # type: ignore[arg-type]
        table.c.sweep_id == sweep_id,
        table.c.number == sa.bindparam("this_number"),
        sa.func.coalesce(table.c.job_row, 0) == sa.bindparam("this_job"),
    )
    values = [
        {"this_number": number, "this_job": old or 0, "job_row": new} for number, old, new in moves
    ]
    if not values:
        return True
    return queries.row_count(session.connection().execute(update, values)) == len(values)


def move(session: orm.Session, moves: Sequence[tuple[int, int]]) -> None:
    """Let points follow from an old job to the one that took its place."""
    table = models.SweepPoint.__table__
    update = sa.update(table).where(table.c.job_row == sa.bindparam("this_job"))  # type: ignore[arg-type]
    values = [{"this_job": old, "job_row": new} for old, new in moves]
    if values:
        session.connection().execute(update, values)


def set_state(session: orm.Session, sweep_id: int, before: str, after: str) -> bool:
    """Change the state of a sweep, if it still has this one."""
    statement = sa.update(models.Sweep).where(
        models.Sweep.id == sweep_id, models.Sweep.state == before
    )
    return queries.row_count(session.execute(statement.values(state=after))) == 1


def count(session: orm.Session, sweep_ids: Collection[int]) -> list[tuple[int, Group]]:
    """Return how many points are in which state, each with the sweep's ID first."""
    job, point = models.Job, models.SweepPoint
    group = (
        point.sweep_id,
        job.state,
        job.reason,
        job.cause,
        job.exit_code,
        job.exit_signal,
        sa.func.coalesce(_WAITS, sa.false()),
    )
    statement = (
        sa.select(sa.func.count(), sa.func.min(point.number), *group)
        .select_from(point)
        .outerjoin(job, point.job_row == job.row)
        .where(queries.among(point.sweep_id, sweep_ids))
        .group_by(*group)
        .order_by(point.sweep_id, sa.func.min(point.number))
    )
    return [(row[0], cast("Group", tuple(row[2:]))) for row in session.execute(statement)]


def hours(
    session: orm.Session, sweep_ids: Collection[int]
) -> list[tuple[int, int, float, float, int]]:
    """Return by sweep: points, their GPU-hours, their node-hours, points without a time limit."""
    point, shape = models.SweepPoint, models.SweepShape
    statement = (
        sa.select(
            point.sweep_id,
            sa.func.count(),
            sa.func.sum(shape.gpu_hours),
            sa.func.sum(shape.node_hours),
            sa.func.count() - sa.func.count(shape.node_hours),
        )
        .join(shape, shape.id == point.shape_id)
        .where(queries.among(point.sweep_id, sweep_ids))
        .group_by(point.sweep_id)
    )
    return [
        (row[0], row[1], row[2] or 0.0, row[3] or 0.0, row[4]) for row in session.execute(statement)
    ]


def place_of(session: orm.Session, job_row: int) -> tuple[int, str] | None:
    """Return sweep and shape of the point whose newest job this is; none: of none."""
    point, shape = models.SweepPoint, models.SweepShape
    statement = (
        sa.select(point.sweep_id, shape.shape)
        .join(shape, shape.id == point.shape_id)
        .where(point.job_row == job_row)
    )
    found = session.execute(statement).first()
    return None if found is None else (found[0], found[1])


def jobs_of_shapes(
    session: orm.Session, sweep_id: int, shape_ids: Collection[int], ended: Collection[str]
) -> list[tuple[str | None, str | None, int]]:
    """Return how the points of these shapes are: job ID (of an array the whole one's), state, how
    many; no ID where nothing was submitted, or Slurm does not show it, or failed and may go on.
    `ended`: the terminal states.

    Of an array of which some tasks are no point's newest job any more, the IDs of its tasks.
    """
    job, point = models.Job, models.SweepPoint
    task, held = orm.aliased(models.Job), orm.aliased(models.SweepPoint)
    ours = sa.select(job.submission_id).join(point, point.job_row == job.row)
    # Of one whole sweep at once: for each row anew it would take seconds with thousands of points.
    partly = sa.select(task.submission_id).where(
        task.submission_id.in_(ours.where(point.sweep_id == sweep_id)),
        task.row.not_in(sa.select(held.job_row).where(held.job_row.is_not(None))),
    )
    whole = sa.func.coalesce(job.array_job_id, job.job_id)
    goes_on = sa.and_(job.recovers.is_(True), job.state.in_(ended), job.state != "COMPLETED")
    # Slurm takes what it has purged for what has come, however it ended.
    not_shown = sa.and_(job.missing_since.is_not(None), job.state.not_in(ended))
    nobody = sa.or_(goes_on, not_shown)
    name = sa.case((nobody, sa.null()), (job.submission_id.in_(partly), job.job_id), else_=whole)
    statement = (
        sa.select(name.label("whose"), job.state, sa.func.count())
        .select_from(point)
        .outerjoin(job, point.job_row == job.row)
        .where(point.sweep_id == sweep_id, queries.among(point.shape_id, shape_ids))
        # By its name: PostgreSQL takes an expression with bound values twice for two expressions.
        .group_by("whose", job.state)
        .order_by(sa.func.min(point.number))
    )
    return [(row[0], row[1], row[2]) for row in session.execute(statement)]


def sent(session: orm.Session, sweep_id: int) -> list[tuple[str, int]]:
    """Return the submissions that have a job ID and have not ended, in the order of sending.

    Each as (ID of the job or of the whole array, tasks that have not ended).
    """
    job, point = models.Job, models.SweepPoint
    job_id = sa.func.coalesce(job.array_job_id, job.job_id)
    statement = (
        sa.select(sa.func.min(job_id), sa.func.count())
        .join(point, point.job_row == job.row)
        .where(point.sweep_id == sweep_id, job.settled.is_(False), job_id.is_not(None))
        .group_by(job.submission_id)
        .order_by(sa.func.min(job.submitted_at), job.submission_id)
    )
    return [(row[0], row[1]) for row in session.execute(statement)]
