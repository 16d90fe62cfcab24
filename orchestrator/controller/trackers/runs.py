"""The runs of jobs, from the database: jobs that continue one another are one run."""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import jobs, metrics, specs
from orchestrator.controller.metrics import queries
from orchestrator.controller.session import contexts
from orchestrator.trackers import records, series


def chains(context: contexts.Context, selected: Sequence[jobs.Job]) -> list[list[jobs.Job]]:
    """Return the chains of these jobs, each once, in the order of the jobs."""
    with context.store.reading() as work:
        rows = dict.fromkeys(tuple(work.recovery.chain(job.row)) for job in selected)
        by_row = work.jobs.by_row(list({*itertools.chain.from_iterable(rows)}))
    return [[by_row[row] for row in chain] for chain in rows]


def of_chain(context: contexts.Context, chain: Sequence[jobs.Job]) -> records.Run:
    """Return the run of jobs that continue one another, with all its values."""
    first, last = chain[0], chain[-1]
    with context.store.reading() as work:
        spec = specs.from_json(work.jobs.submission_of(last.row).spec)
    created = first.created_at.timestamp()
    order = {job.row: place for place, job in enumerate(chain)}
    query = metrics.MetricQuery(job_rows=list(order), prefer_jsonl=True)
    rows = itertools.chain.from_iterable(queries.pages(context, query))
    identity = records.run_id(first)
    return records.Run(
        id=identity,
        name=f"{first.name}.{identity}",
        group=first.sweep or "",
        created=created,
        job=last,
        tracking=spec.tracking,
        parameters=dict(_parameters(spec, last.array_task_id)),
        series=series.of_chain(rows, order, created),
    )


def _parameters(spec: jobs.JobSpec, task: int | None) -> Iterator[tuple[str, str]]:
    own: Mapping[str, Any] = {}
    if spec.array.tasks is not None and task is not None:
        own = spec.array.tasks[task]
    for name, value in {**spec.args, **own}.items():
        yield name, value if isinstance(value, str) else json.dumps(value)


def status(run: records.Run) -> str:
    """Return the state of the run in MLflow's words."""
    state = run.job.state
    if state not in jobs.TERMINAL:
        return "RUNNING" if state is jobs.JobState.RUNNING else "SCHEDULED"
    if state is jobs.JobState.COMPLETED:
        return "FINISHED"
    return "KILLED" if state is jobs.JobState.CANCELLED else "FAILED"


def ended_milliseconds(run: records.Run) -> int | None:
    ended: datetime.datetime | None = run.job.ended_at
    return None if ended is None else round(1000 * ended.timestamp())
