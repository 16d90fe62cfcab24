"""Numbers of jobs, drawn into a file."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator import errors, jobs, metrics
from orchestrator.cli import files
from orchestrator.controller.metrics import queries
from orchestrator.controller.session import contexts
from orchestrator.reports import drawing, metric_figures

#: More points of a line than a figure has dots of width cannot be seen.
MOST_POINTS = 2000
#: Figures above one another; more would be too small to read.
MOST_FIGURES = 8


def plot(
    context: contexts.Context,
    wanted: metrics.MetricQuery,
    found: Sequence[jobs.Job],
    path: Path,
    by: str | None,
) -> bool:
    """Draw the numbers, a figure a name and a line a job; false where there are none."""
    form = path.suffix.removeprefix(".").lower()
    if form not in drawing.FORMATS:
        raise click.UsageError(f"--plot {path}: end it in .svg, .png or .pdf")
    drawer = drawing.Drawer()
    made = _lines(context, queries.thinned(wanted, MOST_POINTS), found)
    if not made:
        return False
    axis: metric_figures.Axis | None = by  # type: ignore[assignment]
    drawn = metric_figures.build(made, axis)
    if not drawn:
        raise errors.NotFoundError(f"none of these numbers tells its {by or 'place'}")
    if len(drawn) > MOST_FIGURES:
        names = ", ".join(figure.name for figure in drawn)
        raise click.UsageError(
            f"{len(drawn)} figures do not fit into one file: choose by --name among {names}"
        )
    content = drawer.draw(drawn, form)
    with files.replacing(path) as new:
        new.write_bytes(content)
    context.reporter.info(f"{path}: {', '.join(figure.name for figure in drawn)}")
    return True


def _lines(
    context: contexts.Context, wanted: metrics.MetricQuery, found: Sequence[jobs.Job]
) -> list[metric_figures.Line]:
    points: dict[tuple[str, str, int, int | None], list[metric_figures.Point]] = {}
    for page in queries.pages(context, wanted):
        for row in page:
            points.setdefault((row.name, row.unit, row.job_row, row.rank), []).append(
                metric_figures.Point(
                    value=math.nan if row.value is None else row.value,
                    step=row.step,
                    epoch=row.epoch,
                    time_seconds=None
                    if row.time is None
                    else row.time.replace(tzinfo=datetime.UTC).timestamp(),
                )
            )
    labels = {job.row: f"{job.job_id or f'@{job.row}'} {job.name}" for job in found}
    return [
        metric_figures.Line(
            name=name,
            unit=unit,
            label=labels[job_row] + ("" if rank is None else f" rank {rank}"),
            points=mine,
        )
        for (name, unit, job_row, rank), mine in sorted(
            points.items(), key=lambda item: (item[0][0], item[0][1])
        )
    ]
