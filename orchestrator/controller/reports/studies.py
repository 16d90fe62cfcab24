"""The jobs of a sweep, or jobs that were named, as a study."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from db import unit_of_work
from orchestrator import errors, jobs, reports, specs
from orchestrator.controller.reports import measurements as measured
from orchestrator.controller.session import contexts
from orchestrator.controller.sweeps import queries
from orchestrator.reports import curves
from orchestrator.specs import ranks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """What a report is made of."""

    title: str
    #: where the numbers come from, for people
    source: str
    #: one of reports' units
    unit: str
    measurements: tuple[reports.Measurement, ...]
    #: strong or weak; none: what the batches say
    scaling: str | None = None
    #: sentences about what is missing
    left_out: tuple[str, ...] = ()

    @property
    def measurement_set(self) -> reports.MeasurementSet:
        """Return what a baseline keeps."""
        return reports.MeasurementSet(unit=self.unit, measurements=self.measurements)


def of_sweep(context: contexts.Context, reference: str) -> Study:
    """Return the study that a sweep is; NotFoundError where nothing was measured yet."""
    sweep = queries.find(context, reference)
    pairs = queries.points(context, sweep)
    with context.store.reading() as work:
        document = work.sweeps.document(sweep.row)
    found = measured.measure(
        context,
        [pair.job for pair in pairs if pair.job is not None],
        renamed=batch_names(sweep.kind, document.get("sweep", {})),
    )
    missing = sum(pair.job is None for pair in pairs)
    told = [f"{missing} of {len(pairs)} points are not submitted"] if missing else []
    return _study(
        f"{sweep.name}",
        f"sweep {sweep.name} (@{sweep.row})",
        found,
        scaling=sweep.kind if sweep.kind in ("strong", "weak") else None,
        left_out=told,
    )


def of_jobs(context: contexts.Context, wanted: Sequence[jobs.Job]) -> Study:
    """Return the study that these jobs are; NotFoundError where none has measured anything."""
    names = ", ".join(dict.fromkeys(job.name for job in wanted))
    numbers = ", ".join(job.job_id or f"@{job.row}" for job in wanted)
    return _study(names, f"jobs {numbers}", measured.measure(context, wanted))


def history(context: contexts.Context, wanted: Sequence[jobs.Job], most: int) -> Study:
    """Return the newest jobs of these names that completed before, so many of each size.

    Before a job of a sweep is before its sweep: repeats of one study are no history of each other.
    NotFoundError where there are none.
    """
    names = tuple(dict.fromkeys(job.name for job in wanted))
    tokens = {job.token for job in wanted}
    with context.store.reading() as work:
        begun = min(_begun(work, job) for job in wanted)
        query = jobs.JobQuery(names=names, states=(jobs.JobState.COMPLETED.value,), limit=None)
        earlier = [
            job
            for job in work.jobs.find(query)
            if job.created_at < begun and job.token not in tokens
        ]
        stored = work.jobs.specs({job.token for job in [*wanted, *earlier]})
    ranks_of = {token: ranks.world_size(specs.from_json(text)) for token, text in stored.items()}

    def size(job: jobs.Job) -> tuple[int, int]:
        # Neither tells alone: without GPUs all have 0, and on whole nodes all have the same.
        return job.gpus or 0, ranks_of[job.token]

    before = [
        job
        for wished in dict.fromkeys(size(job) for job in wanted)
        for job in [other for other in earlier if size(other) == wished][:most]
    ]
    if not before:
        raise errors.NotFoundError(
            f"no job named {', '.join(names)} completed before, of this size"
        )
    return of_jobs(context, before)


def _begun(work: unit_of_work.UnitOfWork, job: jobs.Job) -> datetime.datetime:
    """Return when the job was made, or the sweep that it belongs to."""
    if job.sweep is None:
        return job.created_at
    # Those of one name never overlap: the newest that was there is the job's.
    made = [one.created_at for one in work.sweeps.newest(name=job.sweep)]
    return next((at for at in made if at <= job.created_at), job.created_at)


def _study(
    title: str,
    source: str,
    found: measured.Measured,
    *,
    scaling: str | None = None,
    left_out: Sequence[str] = (),
) -> Study:
    told = (*left_out, *found.left_out)
    if not found.measurements:
        raise errors.NotFoundError("\n".join([f"{source}: nothing is measured yet", *told]))
    return Study(
        title=title,
        source=source,
        unit=found.unit,
        measurements=found.measurements,
        scaling=scaling,
        left_out=told,
    )


def batch_names(kind: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Return what the program of a sweep calls its batch -> what a report calls it."""
    argument = table.get("batch_argument")
    if not isinstance(argument, str):
        return {}
    of = table.get("batch_argument_of", "gpu" if kind == "weak" else "global")
    name = argument.removeprefix("--").replace("-", "_")
    return {name: curves.DEVICE_BATCH if of == "gpu" else curves.GLOBAL_BATCH}
