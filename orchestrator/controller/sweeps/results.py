"""Read the metrics of a sweep's points, each with all jobs that continued one another."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from db import unit_of_work
from orchestrator import errors, jobs, metrics, sweeps
from orchestrator.controller.metrics import ingest
from orchestrator.controller.metrics import queries as metric_queries
from orchestrator.controller.recovery import chains
from orchestrator.controller.session import contexts
from orchestrator.metrics import choices
from orchestrator.patterns import aliases
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
    """Return the points of a sweep, after reading what is new in the logs of their jobs."""
    with context.store.reading() as work:
        points = work.sweeps.points(sweep.row)
        point_of = points_by_job(work, points)
        members = work.jobs.by_row(list(point_of))
        document = work.sweeps.document(sweep.row)
    ingest.ingest_for_command(context, [members[row] for row in point_of])
    with context.store.reading() as work:
        names = work.metrics.names(list(point_of))
    return Material(points=points, document=document, point_of=point_of, names=names)


def points_by_job(
    work: unit_of_work.UnitOfWork, points: Sequence[sweeps.StoredPoint]
) -> dict[int, int]:
    """Return the number of the point by job, in the order of points and jobs.

    A point whose job was continued after a failure or the time limit has all jobs of the chain. A
    job that was submitted again from the start counts alone.
    """
    numbers = {point.job.row: point.number for point in points if point.job is not None}
    owners = chains.owners(work, [point.job for point in points if point.job is not None])
    return {row: numbers[owner] for row, owner in owners.items()}


def measure(
    context: contexts.Context,
    material: Material,
    chosen: Sequence[choices.Choice],
    numbers: Collection[int] | None = None,
) -> dict[int, Sequence[choices.Measured | None]]:
    """Return the chosen numbers of each point that has metrics, by its number.

    Only the metrics of one point are in memory.

    Args:
        numbers: only these points; None: all.
    """
    query = metrics.MetricQuery(
        job_rows=tuple(
            row for row, number in material.point_of.items() if numbers is None or number in numbers
        ),
        names=tuple({name for choice in chosen for name in choice.names}),
        prefer_jsonl=True,
        # Millions of older values need not be read.
        last=1 if all(choice.statistic == "last" for choice in chosen) else None,
    )
    return {
        number: [choices.measure(rows, choice) for choice in chosen]
        for number, rows in _by_point(context, material, query if chosen else None)
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the results of a sweep show."""

    #: NAME, NAME:STATISTIC or NAME@OTHER; none: what sweeps usually report
    metrics: Sequence[str] = ()
    #: whether a low or a high value of the first metric is better; None: by its name
    direction: Literal["min", "max"] | None = None
    #: average over the values of these parameters, beside the repeat and seeds
    over: Sequence[str] = ()
    #: one row for each run
    each: bool = False
    #: count what runs reported that are not COMPLETED
    unfinished: bool = False


#: Columns beside parameters and metrics.
_COLUMNS = ("rank", "point", "runs", "state", "job_id")
_DIRECTIONS = {None: 0, "min": -1, "max": 1}


def build(context: contexts.Context, material: Material, wanted: Wanted) -> results.Results:
    """Return the rows of a sweep, the best first.

    Raises RequestError for an invalid metric or parameter, and NotFoundError for an unknown metric.
    """
    chosen = _choose(context, wanted, material.names)
    labels = [choice.label for choice in chosen]
    points = parameters.Points(material.points, material.document, (*_COLUMNS, *labels))
    return results.build(
        runs(material, measure(context, material, chosen), chosen),
        points,
        chosen,
        averaged=_averaged(points, wanted.over, each=wanted.each),
        with_unfinished=wanted.unfinished,
    )


def best(shown: results.Results, count: int | None) -> results.Results:
    """Return the best rows; None: all. RequestError if it is not known what is better."""
    if count is None:
        return shown
    first = next(iter(shown.choices), None)
    if first is not None and not first.direction:
        raise errors.RequestError(
            f"--best: it is not known whether a high or a low {first.name} is better; "
            "state --direction max or min"
        )
    return results.best(shown, count)


def _choose(
    context: contexts.Context, wanted: Wanted, names: Sequence[str]
) -> list[choices.Choice]:
    texts = wanted.metrics
    if not texts:
        texts = choices.usual_names(names)
        if texts:
            others = [name for name in names if name not in (*texts, "epoch", "step")]
            context.reporter.info(
                f"--metric {texts[0]}; other metrics: {', '.join(others) or 'none'}"
            )
    try:
        direction = _DIRECTIONS[wanted.direction]
        return choices.resolve(texts, names, direction, alias=aliases.normalized)
    except choices.UnknownMetricError as exc:
        raise errors.NotFoundError(f"--metric: {exc}") from exc
    except choices.ChoiceError as exc:
        raise errors.RequestError(f"--metric: {exc}") from exc


def _averaged(points: parameters.Points, over: Sequence[str], *, each: bool) -> list[str]:
    """Return the keys over whose values rows are means."""
    if each:
        return []
    keys = [parameter.key for parameter in points.parameters if parameter.is_seed]
    for name in over:
        matching = [p.key for p in points.parameters if name in (p.key, p.heading)]
        if not matching:
            headings = ", ".join(parameter.heading for parameter in points.parameters)
            raise errors.RequestError(f"--over: there is no parameter {name!r}; use {headings}")
        keys += matching
    return keys


def runs(
    material: Material,
    measured: Mapping[int, Sequence[choices.Measured | None]],
    chosen: Sequence[choices.Choice],
) -> list[results.Run]:
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
