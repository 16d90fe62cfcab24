"""The results of a sweep, read again and again: only what has changed is read."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Mapping, Sequence

from db import unit_of_work
from orchestrator import sweeps
from orchestrator.controller.session import contexts
from orchestrator.controller.sweeps import results as reading
from orchestrator.metrics import choices
from orchestrator.sweeps import results

#: Choices of metrics that are remembered.
_MAX_CHOICES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Measured:
    #: all metrics and events up to here are in it
    newest_metric: int
    newest_event: int
    #: as in Material
    point_of: Mapping[int, int]
    #: by number of the point
    values: Mapping[int, Sequence[choices.Measured | None]]


class Followed:
    """A sweep whose points and metrics are in memory. Several threads may use it."""

    def __init__(self, row: int) -> None:
        self._row = row
        self._lock = threading.Lock()
        self._material: reading.Material | None = None
        #: numbers of the newest event and of the newest metric set that are in it
        self._marks = (0, 0)
        #: by the labels of the choices
        self._measured: dict[tuple[str, ...], _Measured] = {}

    def material(self, context: contexts.Context) -> reading.Material:
        """Return the points; logs are not read."""
        with self._lock:
            return self._current(context)

    def runs(
        self, context: contexts.Context, chosen: Sequence[choices.Choice]
    ) -> tuple[reading.Material, list[results.Run]]:
        """Return the points, and the chosen numbers of each."""
        with self._lock:
            material = self._current(context)
            key = tuple(choice.label for choice in chosen)
            known = self._measured.pop(key, None)
            with context.store.reading() as work:
                newest = work.changes.newest_metric(), work.changes.newest_event()
                numbers = None if known is None else _outdated(work, known, material)
            if known is None or numbers:
                fresh = reading.measure(context, material, chosen, numbers)
                values = {} if known is None else dict(known.values)
                for number in numbers or ():
                    values.pop(number, None)
                known = _Measured(
                    newest_metric=newest[0],
                    newest_event=newest[1],
                    point_of=material.point_of,
                    values=values | fresh,
                )
            self._measured[key] = known
            while len(self._measured) > _MAX_CHOICES:
                del self._measured[next(iter(self._measured))]
            return material, reading.runs(material, known.values, chosen)

    def _current(self, context: contexts.Context) -> reading.Material:
        with context.store.reading() as work:
            marks = work.changes.newest_event(), work.changes.newest_metric_set()
            if self._material is None or marks != self._marks:
                self._material = self._read(work, self._material, marks)
                self._marks = marks
            return self._material

    def _read(
        self, work: unit_of_work.UnitOfWork, known: reading.Material | None, marks: tuple[int, int]
    ) -> reading.Material:
        points = None if known is None else self._changed_points(work, known.points)
        if known is None or points is None:
            points = work.sweeps.points(self._row)
        point_of = reading.points_by_job(work, points)
        names = known.names if known is not None else []
        if known is None or point_of != known.point_of or marks[1] != self._marks[1]:
            names = work.metrics.names(list(point_of))
        document = work.sweeps.document(self._row) if known is None else known.document
        return reading.Material(points=points, document=document, point_of=point_of, names=names)

    def _changed_points(
        self, work: unit_of_work.UnitOfWork, known: Sequence[sweeps.StoredPoint]
    ) -> Sequence[sweeps.StoredPoint] | None:
        """Return the points with their present jobs; None if there are new points."""
        job_rows = work.sweeps.job_rows(self._row)
        if len(job_rows) != len(known):
            return None
        changed = work.changes.jobs_with_events(self._marks[0])
        outdated = {
            point.number
            for point in known
            if job_rows[point.number] != (point.job and point.job.row)
            or job_rows[point.number] in changed
        }
        jobs = work.jobs.by_row([row for number in outdated if (row := job_rows[number])])
        return [
            dataclasses.replace(point, job=jobs.get(job_rows[point.number] or 0))
            if point.number in outdated
            else point
            for point in known
        ]


def _outdated(
    work: unit_of_work.UnitOfWork, known: _Measured, material: reading.Material
) -> set[int]:
    """Return the numbers of the points that have new metrics, or other jobs than before.

    Also those with events: `prune` removes metrics.
    """
    changed = work.changes.jobs_with_metrics(known.newest_metric)
    changed |= work.changes.jobs_with_events(known.newest_event)
    numbers = {number for row, number in material.point_of.items() if row in changed}
    if material.point_of != known.point_of:
        before, now = _rows_by_point(known.point_of), _rows_by_point(material.point_of)
        numbers |= {number for number in {*before, *now} if before[number] != now[number]}
    return numbers


def _rows_by_point(point_of: Mapping[int, int]) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = collections.defaultdict(list)
    for row, number in point_of.items():
        rows[number].append(row)
    return rows
