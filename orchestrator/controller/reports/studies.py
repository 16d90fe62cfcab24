"""Studies: the measurements of a sweep, of jobs, or of earlier jobs."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from db import unit_of_work
from orchestrator import errors, jobs, reports, specs, sweeps
from orchestrator.controller.reports import measurements
from orchestrator.controller.session import contexts
from orchestrator.controller.sweeps import queries
from orchestrator.reports import curves
from orchestrator.specs import ranks


def of_sweep(context: contexts.Context, reference: str) -> reports.MeasurementSet:
    """Return the measurements of a sweep; NotFoundError if it has none."""
    sweep = queries.find(context, reference)
    points = queries.points(context, sweep)
    with context.store.reading() as work:
        renamed = batch_names(work, sweep)
    submitted = [point.job for point in points if point.job is not None]
    study = measurements.measure(context, submitted, renamed=renamed)
    missing = len(points) - len(submitted)
    sentences = [f"{missing} of {len(points)} points are not submitted"] if missing else []
    return _checked(
        dataclasses.replace(
            study,
            title=sweep.name,
            source=f"sweep {sweep.name} (@{sweep.row})",
            scaling=sweep.kind if sweep.kind in ("strong", "weak") else None,
            left_out=(*sentences, *study.left_out),
        )
    )


def of_jobs(context: contexts.Context, selected: Sequence[jobs.Job]) -> reports.MeasurementSet:
    """Return the measurements of jobs; NotFoundError if they have none."""
    names = ", ".join(dict.fromkeys(job.name for job in selected))
    job_ids = ", ".join(job.job_id or f"@{job.row}" for job in selected)
    study = measurements.measure(context, selected)
    return _checked(dataclasses.replace(study, title=names, source=f"jobs {job_ids}"))


def _checked(study: reports.MeasurementSet) -> reports.MeasurementSet:
    if not study.measurements:
        lines = [f"{study.source}: nothing is measured yet", *study.left_out]
        raise errors.NotFoundError("\n".join(lines))
    return study


def history(
    context: contexts.Context, selected: Sequence[jobs.Job], most: int
) -> reports.MeasurementSet:
    """Measure the newest earlier jobs with the same names and sizes, at most `most` per size.

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


def batch_names(work: unit_of_work.UnitOfWork, sweep: sweeps.StoredSweep) -> dict[str, str]:
    """Return what the program of a sweep calls its batch -> what a report calls it."""
    table = work.sweeps.document(sweep.row).get("sweep", {})
    argument = table.get("batch_argument")
    if not isinstance(argument, str):
        return {}
    of = table.get("batch_argument_of", "gpu" if sweep.kind == "weak" else "global")
    name = argument.removeprefix("--").replace("-", "_")
    return {name: curves.DEVICE_BATCH if of == "gpu" else curves.GLOBAL_BATCH}
