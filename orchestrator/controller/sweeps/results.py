"""Read the metrics of a sweep's points, each with all jobs that continued one another."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import jobs, metrics, sweeps
from orchestrator.controller.metrics import ingest
from orchestrator.controller.metrics import queries as metric_queries
from orchestrator.controller.recovery import chains
from orchestrator.controller.session import contexts
from orchestrator.metrics import choices
from orchestrator.sweeps import parameters, results


@dataclasses.dataclass(frozen=True, kw_only=True)
class Material:
    points: Sequence[sweeps.StoredPoint]
    #: the spec by table and key
    document: Mapping[str, Any]
    #: number of the point by job, for all jobs of its chain; in the order of points and jobs
    point_of: Mapping[int, int]
    #: of all metrics of these jobs
    names: Sequence[str]


def read(context: contexts.Context, sweep: sweeps.StoredSweep) -> Material:
    """Return the points of a sweep, after reading what is new in the logs of their jobs.

    A point whose job was continued after a failure or the time limit has the metrics of all jobs
    of the chain. A job that was submitted again from the start counts alone.
    """
    with context.store.reading() as work:
        points = work.sweeps.points(sweep.row)
        numbers = {point.job.row: point.number for point in points if point.job is not None}
        owners = chains.owners(work, [point.job for point in points if point.job is not None])
        point_of = {row: numbers[owner] for row, owner in owners.items()}
        members = work.jobs.by_row(list(point_of))
        document = work.sweeps.document(sweep.row)
    ingest.ingest_for_command(context, [members[row] for row in point_of])
    with context.store.reading() as work:
        names = work.metrics.names(list(point_of))
    return Material(points=points, document=document, point_of=point_of, names=names)


def measure(
    context: contexts.Context, material: Material, chosen: Sequence[choices.Choice]
) -> list[results.Run]:
    """Return the chosen numbers of each point. Only the metrics of one point are in memory."""
    query = metrics.MetricQuery(
        job_rows=tuple(material.point_of),
        names=tuple({name for choice in chosen for name in choice.names}),
        prefer_jsonl=True,
        # Millions of older values need not be read.
        last=1 if all(choice.statistic == "last" for choice in chosen) else None,
    )
    measured = {
        number: [choices.measure(rows, choice) for choice in chosen]
        for number, rows in _by_point(context, material, query if chosen else None)
    }
    nothing = [None] * len(chosen)
    return [
        results.Run(point=point, measured=measured.get(point.number, nothing))
        for point in material.points
    ]


def _by_point(
    context: contexts.Context, material: Material, query: metrics.MetricQuery | None
) -> Iterator[tuple[int, list[metrics.MetricRow]]]:
    if query is None:
        return
    rows = itertools.chain.from_iterable(metric_queries.pages(context, query))
    for number, group in itertools.groupby(rows, lambda row: material.point_of[row.job_row]):
        yield number, list(group)


def labels(context: contexts.Context, selected: Sequence[jobs.Job]) -> dict[int, str]:
    """Return by row what distinguishes jobs of sweeps from one another: `lr=0.1 seed=2`.

    Jobs that belong to no sweep, or that no parameter distinguishes, have none.
    """
    of_sweeps = {job.row for job in selected if job.sweep is not None}
    if len(of_sweeps) < 2:
        return {}
    labelled: dict[int, str] = {}
    with context.store.reading() as work:
        for row in work.sweeps.rows_of(of_sweeps):
            own = [p for p in work.sweeps.points(row) if p.job and p.job.row in of_sweeps]
            varied = parameters.Points(own, work.sweeps.document(row))
            labelled |= {point.job.row: varied.label(point) for point in own if point.job}
    counts = collections.Counter(labelled.values())
    return {row: label for row, label in labelled.items() if label and counts[label] == 1}
