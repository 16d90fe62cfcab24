"""Sweeps in the store: rows <-> records, and the questions and changes in these words."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import orm

from db import models
from db import sweeps as queries
from db.stores import jobs as job_store
from orchestrator import config, jobs, specs, sweeps
from orchestrator.controller import naming


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredSweep:
    """A sweep as it was submitted, less its points."""

    #: our own number, `@3`
    row: int
    name: str
    kind: str
    #: cancelled: nothing more of it is submitted
    state: Literal["open", "cancelled"]
    cluster: str
    scheduler: Literal["slurm", "local"]
    #: name of the profile in force
    profile: str
    #: the file that it was read from
    source: str
    #: where it was submitted
    folder: str
    max_running: int | None
    created_at: datetime.datetime


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredPoint:
    """A point of a stored sweep and its newest job."""

    #: from 1, in the order of the sweep
    number: int
    point: sweeps.Point
    #: none: nothing was submitted of it
    job_row: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointGroup:
    """Points that are in the same state for the same reason."""

    points: int
    #: none: nothing was submitted of them
    state: jobs.JobState | None
    reason: str | None
    cause: str | None
    exit_code: int | None
    exit_signal: int | None
    #: not submitted for lack of room, and sent by itself
    waits_for_room: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """What a submission of a sweep has to wait for."""

    #: job IDs whose end, whose good end, it waits for in Slurm
    after: tuple[str, ...] = ()
    after_ok: tuple[str, ...] = ()
    #: points of the baseline that Slurm does not have yet, and that did not end well
    unsent: int = 0
    failed: int = 0

    @property
    def dependency(self) -> str:
        """As sbatch takes it; "": none."""
        kinds = (("afterok", self.after_ok), ("afterany", self.after))
        return ",".join(":".join([kind, *ids]) for kind, ids in kinds if ids)


_PLAIN = tuple(
    field.name
    for field in dataclasses.fields(StoredSweep)
    if field.name not in {"row", "state", "scheduler"}
)


class SweepStore:
    """The sweeps within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def add(self, sweep: sweeps.Sweep, profile: config.Profile, **fields: object) -> StoredSweep:
        """Store a sweep and its points, none of them submitted; `fields` are of StoredSweep."""
        # What TOML has and JSON lacks, times and dates, no key of a spec takes.
        document = json.dumps(sweep.document, default=str, ensure_ascii=False)
        row = models.Sweep(
            **{
                "name": sweep.name,
                "kind": sweep.table.kind,
                "state": "open",
                "profile": profile.name,
                "max_running": sweep.table.max_running,
                "spec": document,
                **fields,
            }
        )
        shapes, points = self._columns(sweep, sweep.points, 1, profile, ())
        queries.add(self._db, row, shapes, points)
        return _sweep_record(row)

    def add_points(
        self,
        row: int,
        sweep: sweeps.Sweep,
        points: Sequence[sweeps.Point],
        profile: config.Profile,
    ) -> int:
        """Store further points, which `sweep` made; none may be there already.

        Returns the number of the first.
        """
        known = queries.shapes(self._db, row)
        taken = len(queries.points(self._db, row))
        shapes, columns = self._columns(sweep, points, taken + 1, profile, known)
        queries.add_points(self._db, row, shapes, columns)
        return taken + 1

    def _columns(
        self,
        sweep: sweeps.Sweep,
        points: Sequence[sweeps.Point],
        first_number: int,
        profile: config.Profile,
        known: Sequence[models.SweepShape],
    ) -> tuple[list[models.SweepShape], list[Mapping[str, object]]]:
        shapes = list(known)
        places = {(shape.shape, shape.spec): place for place, shape in enumerate(shapes)}
        texts = {key: specs.to_json(spec) for key, spec in sweep.shapes.items()}
        columns: list[Mapping[str, object]] = []
        for number, point in enumerate(points, first_number):
            key = point.shape, texts[point.shape]
            if key not in places:
                places[key] = len(shapes)
                asked = sweeps.asked(point.spec, profile)
                known_hours = not asked.points_without_time_limit
                shapes.append(
                    models.SweepShape(
                        shape=point.shape,
                        spec=texts[point.shape],
                        gpu_hours=asked.gpu_hours if known_hours else None,
                        node_hours=asked.node_hours if known_hours else None,
                    )
                )
            columns.append(
                {
                    "number": number,
                    "identity": point.identity,
                    "name": point.name,
                    "repeat": point.repeat,
                    "shape": places[key],
                    "settings": json.dumps(point.settings, ensure_ascii=False),
                    "changes": json.dumps(point.changes, ensure_ascii=False),
                }
            )
        return shapes, columns

    def named(self, reference: str) -> StoredSweep | None:
        """Return the sweep that `@3` or NAME means, of a name the newest."""
        if reference.startswith("@"):
            row = naming.row_named(reference)
            return None if row is None else self.get(row)
        return next(iter(self.newest(name=reference, limit=1)), None)

    def get(self, row: int) -> StoredSweep | None:
        found = queries.sweep(self._db, row)
        return None if found is None else _sweep_record(found)

    def newest(self, *, name: str | None = None, limit: int | None = None) -> list[StoredSweep]:
        """Return sweeps, newest first."""
        return [_sweep_record(row) for row in queries.sweeps(self._db, name=name, limit=limit)]

    def document(self, row: int) -> Mapping[str, Any]:
        """Return what the file and the command line said, by table and key."""
        text = queries.spec(self._db, row)
        assert text is not None, "sweeps are never deleted"
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def baseline_first(self, row: int) -> bool:
        """Return whether the smallest size is submitted first, and the rest after its good end."""
        return bool(self.document(row)["sweep"].get("baseline_first"))

    def identities(self, row: int) -> set[str]:
        """Return the identities of all points of a sweep."""
        return queries.identities(self._db, row)

    def points(self, row: int, *, job_rows: Collection[int] | None = None) -> list[StoredPoint]:
        """Return the points of a sweep in their order; `job_rows`: only those with these jobs."""
        shapes = {
            shape.id: (shape.shape, specs.from_json(shape.spec))
            for shape in queries.shapes(self._db, row)
        }
        return [
            _point_record(point, *shapes[point.shape_id])
            for point in queries.points(self._db, row, job_rows=job_rows)
        ]

    def jobs(self, row: int) -> list[jobs.Job]:
        """Return the newest job of each point that has one, in the order of the points."""
        return job_store.job_records(queries.jobs(self._db, row))

    def bind(self, row: int, moves: Sequence[tuple[int, int | None, int]]) -> bool:
        """Give points a job, each (number, row of the job it has or none, row of the new one).

        Belongs into the transaction that stores the jobs. False where a point has another job by
        now: that transaction must not be committed.
        """
        return queries.bind(self._db, row, moves)

    def follow(self, moves: Sequence[tuple[int, int]]) -> None:
        """Let points follow from the row of an old job to that of the one in its place."""
        queries.move(self._db, moves)

    def has_point(self, job_row: int) -> bool:
        """Tell whether this is the newest job of a point."""
        return queries.place_of(self._db, job_row) is not None

    def set_state(self, sweep: StoredSweep, state: Literal["open", "cancelled"]) -> bool:
        """Change the state; false where it is not the one that we know."""
        return queries.set_state(self._db, sweep.row, sweep.state, state)

    def groups(self, sweep_rows: Collection[int]) -> dict[int, list[PointGroup]]:
        """Return how many points are in which state, by sweep."""
        found: dict[int, list[PointGroup]] = collections.defaultdict(list)
        for points, (row, state, reason, cause, code, signal, waits) in queries.count(
            self._db, sweep_rows
        ):
            found[row].append(
                PointGroup(
                    points=points,
                    state=None if state is None else jobs.JobState(state),
                    reason=reason,
                    cause=cause,
                    exit_code=code,
                    exit_signal=signal,
                    waits_for_room=bool(waits),
                )
            )
        return found

    def cancelled(self, job_row: int) -> StoredSweep | None:
        """Return the sweep of which nothing more is submitted, and whose point has this job."""
        found = queries.place_of(self._db, job_row)
        sweep = None if found is None else self.get(found[0])
        return sweep if sweep is not None and sweep.state == "cancelled" else None

    def turn_of(self, job_row: int, tasks: int) -> Turn:
        """Return what a stored submission of a sweep waits for; nothing where it is of none."""
        found = queries.place_of(self._db, job_row)
        return Turn() if found is None else self.turn(found[0], found[1], tasks)

    def turn(self, row: int, shape: str, tasks: int) -> Turn:
        """Return what a submission of points of this shape waits for."""
        sweep = queries.sweep(self._db, row)
        assert sweep is not None, "sweeps are never deleted"
        after: tuple[str, ...] = ()
        if sweep.max_running is not None:
            sent = [sweeps.Sent(job_id=one, tasks=n) for one, n in queries.sent(self._db, row)]
            after = sweeps.after(sent, tasks, sweep.max_running)
        baseline = self._baseline(row) if self.baseline_first(row) else {}
        if shape in baseline.values():
            return Turn(after=after)
        ids: list[str] = []
        unsent = failed = 0
        found = queries.jobs_of_shapes(self._db, row, baseline, jobs.TERMINAL)
        for job_id, state, points in found:
            if job_id is None:
                unsent += points
            elif state in jobs.TERMINAL:
                failed += points if state != jobs.JobState.COMPLETED else 0
            else:
                ids.append(job_id)
        return Turn(after=after, after_ok=tuple(dict.fromkeys(ids)), unsent=unsent, failed=failed)

    def _baseline(self, row: int) -> dict[int, str]:
        """Return the shapes with the fewest ranks, by their IDs."""
        shapes = {str(one.id): one for one in queries.shapes(self._db, row)}
        found = {key: specs.from_json(one.spec) for key, one in shapes.items()}
        return {shapes[key].id: shapes[key].shape for key in sweeps.smallest(found)}

    def asked(self, sweep_rows: Collection[int]) -> dict[int, sweeps.Asked]:
        """Return what all points ask for, by sweep."""
        return {
            row: sweeps.Asked(
                points=points,
                gpu_hours=gpu_hours,
                node_hours=node_hours,
                points_without_time_limit=without,
            )
            for row, points, gpu_hours, node_hours, without in queries.hours(self._db, sweep_rows)
        }


def _sweep_record(row: models.Sweep) -> StoredSweep:
    values: dict[str, Any] = {name: getattr(row, name) for name in _PLAIN}
    return StoredSweep(
        row=row.id,
        state="cancelled" if row.state == "cancelled" else "open",
        scheduler="local" if row.scheduler == "local" else "slurm",
        **values,
    )


def _point_record(row: models.SweepPoint, shape: str, base: jobs.JobSpec) -> StoredPoint:
    changes = _values(row.changes)
    point = sweeps.Point(
        name=row.name,
        identity=row.identity,
        shape=shape,
        repeat=row.repeat,
        settings=_values(row.settings),
        changes=changes,
        spec=sweeps.spec_of(base, changes),
    )
    return StoredPoint(number=row.number, point=point, job_row=row.job_row)


def _values(text: str) -> dict[str, jobs.ArgumentValue]:
    found: dict[str, Any] = json.loads(text)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
