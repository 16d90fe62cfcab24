"""Studies: the measurements of a sweep, of jobs, or of earlier jobs."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from db import unit_of_work
from orchestrator import errors, jobs, reports, specs
from orchestrator.controller.reports import measurements
from orchestrator.controller.session import contexts
from orchestrator.controller.sweeps import queries
from orchestrator.reports import curves
from orchestrator.specs import ranks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Measurements, with what a report needs besides."""

    title: str
    #: where the measurements come from, for people
    source: str
    #: one of reports.records.UNITS
    unit: str
    measurements: tuple[reports.Measurement, ...]
    #: "strong", "weak", or None to infer it from the batches
    scaling: str | None = None
    #: sentences about what is missing
    left_out: tuple[str, ...] = ()

    @property
    def measurement_set(self) -> reports.MeasurementSet:
        return reports.MeasurementSet(unit=self.unit, measurements=self.measurements)


def of_sweep(context: contexts.Context, reference: str) -> Study:
    """Return the study of a sweep; NotFoundError if it has no measurements."""
    sweep = queries.find(context, reference)
    points = queries.points(context, sweep)
    with context.store.reading() as work:
        document = work.sweeps.document(sweep.row)
    measured = measurements.measure(
        context,
        [point.job for point in points if point.job is not None],
        renamed=batch_names(sweep.kind, document.get("sweep", {})),
    )
    unsubmitted = sum(point.job is None for point in points)
    if unsubmitted:
        sentence = f"{unsubmitted} of {len(points)} points are not submitted"
        measured = dataclasses.replace(measured, left_out=(sentence, *measured.left_out))
    study = _study(sweep.name, f"sweep {sweep.name} (@{sweep.row})", measured)
    kind = sweep.kind if sweep.kind in ("strong", "weak") else None
    return dataclasses.replace(study, scaling=kind)


def of_jobs(context: contexts.Context, selected: Sequence[jobs.Job]) -> Study:
    """Return the study of jobs; NotFoundError if they have no measurements."""
    names = ", ".join(dict.fromkeys(job.name for job in selected))
    job_ids = ", ".join(job.job_id or f"@{job.row}" for job in selected)
    return _study(names, f"jobs {job_ids}", measurements.measure(context, selected))


def history(context: contexts.Context, selected: Sequence[jobs.Job], most: int) -> Study:
    """Return the newest earlier jobs with the same names and sizes, at most `most` per size.

    Jobs of the same sweep are not earlier ones. NotFoundError if there are none.
    """
    names = tuple(dict.fromkeys(job.name for job in selected))
    tokens = {job.token for job in selected}
    query = jobs.JobQuery(names=names, states=(jobs.JobState.COMPLETED.value,), limit=None)
    with context.store.reading() as work:
        before = min(_created_at(work, job) for job in selected)
        earlier = [
            job
            for job in work.jobs.find(query)
            if job.created_at < before and job.token not in tokens
        ]
        texts = work.jobs.specs({job.token for job in [*selected, *earlier]})
    ranks_of = {token: ranks.world_size(specs.from_json(text)) for token, text in texts.items()}

    def size(job: jobs.Job) -> tuple[int, int]:
        # Without GPUs all have 0, and on exclusive nodes all have the same number of GPUs.
        return job.gpus or 0, ranks_of[job.token]

    comparable = [
        job
        for own_size in dict.fromkeys(map(size, selected))
        for job in [other for other in earlier if size(other) == own_size][:most]
    ]
    if not comparable:
        raise errors.NotFoundError(
            f"no earlier job named {', '.join(names)} with this size completed"
        )
    return of_jobs(context, comparable)


def _created_at(work: unit_of_work.UnitOfWork, job: jobs.Job) -> datetime.datetime:
    """Return when the job, or its sweep, was created."""
    if job.sweep is None:
        return job.created_at
    # Sweeps of one name never overlap: the newest one before the job is its sweep.
    created = [sweep.created_at for sweep in work.sweeps.newest(name=job.sweep)]
    return next((time for time in created if time <= job.created_at), job.created_at)


def _study(title: str, source: str, measured: measurements.Measured) -> Study:
    if not measured.measurements:
        lines = [f"{source}: nothing is measured yet", *measured.left_out]
        raise errors.NotFoundError("\n".join(lines))
    return Study(
        title=title,
        source=source,
        unit=measured.unit,
        measurements=measured.measurements,
        left_out=measured.left_out,
    )


def batch_names(kind: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Return what the program of a sweep calls its batch -> what a report calls it."""
    argument = table.get("batch_argument")
    if not isinstance(argument, str):
        return {}
    of = table.get("batch_argument_of", "gpu" if kind == "weak" else "global")
    name = argument.removeprefix("--").replace("-", "_")
    return {name: curves.DEVICE_BATCH if of == "gpu" else curves.GLOBAL_BATCH}
