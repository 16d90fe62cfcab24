"""Metrics of jobs as a table, statistics, a comparison, a plot or Parquet."""

from __future__ import annotations

import dataclasses
import math
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator import errors, jobs, metrics
from orchestrator.cli import output
from orchestrator.cli.output import Column, parquet, plots, terminal
from orchestrator.controller.metrics import queries
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.metrics import summaries
from orchestrator.rows import metric_rows, row_values

COLUMNS = (
    Column("job_id"),
    Column("name", "name"),
    Column("value"),
    Column("unit", drop=3),
    Column("epoch", drop=4),
    Column("step", drop=5),
    Column("time", drop=2),
    Column("source", drop=1),
)
_PARQUET_COLUMNS = (
    *("row", "job_row", "job_id", "array_task_id", "job_name", "attempt", "name", "value"),
    *("unit", "step", "epoch", "rank", "world_size", "time", "source", "line"),
)
#: Rows of a table, unless the number is given.
MAX_ROWS = 1000
#: Points of a line in a plot: more than a figure has pixels cannot be seen.
MAX_POINTS = 2000

#: Name and unit of a metric.
Key = tuple[str, str]
Values = list[float | int | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """Which metrics of which jobs are printed, and where."""

    context: contexts.Context
    query: metrics.MetricQuery
    #: by their rows
    jobs: Mapping[int, jobs.Job]
    #: the job whose row has the metrics of each queried job, by row
    owners: Mapping[int, int]
    #: None: stdout
    out: Path | None
    #: what distinguishes jobs of sweeps, by row
    labels: Mapping[int, str]

    def label(self, row: int) -> str:
        """Return the heading of a job: its parameters, if it belongs to a sweep, or its ID."""
        return self.labels.get(row) or naming.name_of(self.jobs[row])

    def pages(self, points: int | None = None) -> Iterator[list[metrics.MetricRow]]:
        """Yield the metrics page by page, at most `points` of each series."""
        query = self.query
        if points is not None:
            query = dataclasses.replace(query, points=min(points, query.points or points))
        return queries.pages(self.context, query)

    def row_pages(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the metrics page by page as rows with their JSON fields."""
        return (
            [metric_rows.metric_row(row, self.jobs[row.job_row]) for row in page]
            for page in self.pages()
        )

    def print_rows(
        self, kind: str, rows: Sequence[output.Row], columns: Sequence[Column | str], form: str
    ) -> int:
        with terminal.printing_to(self.out):
            output.print_rows(kind, rows, columns, form)
        return len(rows)


def print_table(view: View) -> int:
    """Print metrics, and on a terminal a sparkline of each series; return the number of rows."""
    query = view.query
    is_limited = (query.last, query.every, query.points) != (None, None, None)
    limit = None if is_limited or view.out is not None else MAX_ROWS
    count, newest = queries.newest(view.context, query, limit)
    selected = [row for page in newest for row in page]
    if not query.names:
        selected = _without_positions(selected)
    rows = [metric_rows.metric_row(row, view.jobs[row.job_row]) for row in selected]
    with terminal.printing_to(view.out):
        output.print_rows("metrics", rows, COLUMNS, "table")
    if limit is not None and count > limit:
        output.note(
            f"Only the newest {limit:,} of {count:,} rows are shown; "
            "--last, --points, --steps or a pipe select others"
        )
    if view.out is None and sys.stdout.isatty() and len(rows) > 1:
        _print_sparklines(view)
    return len(rows)


def _without_positions(rows: list[metrics.MetricRow]) -> list[metrics.MetricRow]:
    """Return the rows without steps and epochs that the columns of other rows show, if any."""
    others = [
        row
        for row in rows
        if not (row.name in ("step", "epoch") and row.value == getattr(row, row.name))
    ]
    return others or rows


def _print_sparklines(view: View) -> None:
    from orchestrator.cli.output import tables

    glyphs = summaries.BLOCKS if terminal.is_utf8() else summaries.ASCII
    # Beside the name and the range; a sparkline must not be wrapped.
    width = min(max(shutil.get_terminal_size().columns - 56, 8), 48)
    series: dict[tuple[int, str, str, int | None], list[float | None]] = {}
    for page in view.pages(width):
        for row in page if view.query.names else _without_positions(page):
            key = (row.job_row, row.name, row.unit, row.rank)
            series.setdefault(key, []).append(row.value)
    lines = []
    for (job_row, name, unit, rank), values in series.items():
        if len(set(values)) > 1:
            job = f"{view.label(job_row)} " if len(view.jobs) > 1 else ""
            finite = [value for value in values if value is not None and math.isfinite(value)]
            low, high = min(finite, default=math.nan), max(finite, default=math.nan)
            limits = f"{row_values.number(low)} to {row_values.number(high)} {unit}"
            line = summaries.sparkline(values, glyphs)
            lines.append((f"{job}{name}{_of_rank(rank)}", line, limits))
    if not lines:
        return
    longest = max(len(line) + len(limits) for _, line, limits in lines)
    room = max(shutil.get_terminal_size().columns - longest - 4, tables.MIN_NAME_CHARACTERS)
    lines = [(tables.shorten(head, room), line, limits) for head, line, limits in lines]
    head_width = max(len(head) for head, _, _ in lines)
    click.echo()
    for head, line, limits in lines:
        click.echo(f"{head:<{head_width}}  {line}  {limits}".rstrip())


def _of_rank(rank: int | None) -> str:
    return "" if rank is None else f" rank {rank}"


def print_statistics(view: View, stat: str, form: str) -> int:
    """Print one row for each job, name and unit; return their number."""
    names = _statistics(stat)
    computed = _summaries(view)
    rows: list[dict[str, object]] = []
    for job in view.jobs.values():
        for (name, unit), summary in computed.get(job.row, {}).items():
            row: dict[str, object] = {
                "job_row": job.row,
                **row_values.fields_of(job, ("job_id", "array_task_id")),
                "job_name": job.name,
                "name": name,
                "unit": unit,
                **{statistic: summary.of(statistic) for statistic in names},
            }
            if "best" in names:
                row |= {"best_step": summary.best_step, "best_epoch": summary.best_epoch}
            rows.append(row)
    return view.print_rows("metric_statistics", rows, _statistic_columns(names), form)


def _statistic_columns(names: Sequence[str]) -> list[Column]:
    columns = [Column("job_id"), Column("name", "name"), Column("unit", drop=1)]
    # The first statistics are those that were asked for first.
    last = len(names) + 1
    return columns + [Column(name, drop=last - place) for place, name in enumerate(names)]


def compare(view: View, stat: str | None, by: str | None, form: str) -> int:
    """Print jobs side by side, each with its ratio to the first; return the number of rows."""
    if len(view.jobs) < 2:
        raise click.UsageError("--compare requires two or more jobs")
    if by is not None and stat is not None:
        raise click.UsageError("--by prints single metrics: remove --stat")
    lines = _compared_statistics(view, stat) if by is None else _compared_values(view, by)
    heads = ["name", "unit", "statistic" if by is None else by]
    if output.is_json(form):
        items = [
            {
                **dict(zip(heads, head, strict=True)),
                "jobs": [
                    {
                        "job_row": job.row,
                        "job_id": job.job_id,
                        "job_rows": [row for row, own in view.owners.items() if own == job.row],
                        "label": view.labels.get(job.row),
                        "value": value,
                        "ratio": summaries.ratio(value, values[0]),
                    }
                    for job, value in zip(view.jobs.values(), values, strict=True)
                ],
            }
            for head, values in lines
        ]
        return view.print_rows("metric_comparison", items, heads, form)
    first, *rest = map(view.label, view.jobs)
    # Twice the parameters would be too long.
    ratios = [f"{label} ratio" if view.labels else f"{label}/{first}" for label in rest]
    columns = [*heads, first, *(name for pair in zip(rest, ratios, strict=True) for name in pair)]
    rows = []
    for head, values in lines:
        cells: list[object] = [*head, values[0]]
        for value in values[1:]:
            cells += [value, summaries.ratio(value, values[0])]
        rows.append(dict(zip(columns, cells, strict=True)))
    shown = _compared_columns(columns, ratios)
    if form == "table" and view.out is None and not output.fits(rows, shown):
        rows, shown = _one_below_the_other(view, heads, lines), listed_columns(heads[-1])
    return view.print_rows("metric_comparison", rows, shown, form)


def _one_below_the_other(
    view: View, heads: Sequence[str], lines: Sequence[tuple[tuple[str, str, object], Values]]
) -> list[dict[str, object]]:
    return [
        {
            **dict(zip(heads, head, strict=True)),
            "job": view.label(row),
            "value": value,
            "ratio": summaries.ratio(value, values[0]),
        }
        for head, values in lines
        for row, value in zip(view.jobs, values, strict=True)
    ]


def listed_columns(statistic: str) -> list[Column]:
    """Return the columns of a comparison of jobs that do not fit side by side."""
    return [
        Column("name", "name"),
        Column("unit", drop=1),
        Column(statistic, drop=3 if statistic == "statistic" else None),
        Column("job", "text"),
        Column("value"),
        Column("ratio", drop=2),
    ]


def _compared_columns(names: Sequence[str], ratios: Sequence[str]) -> list[Column]:
    """Return the columns of a comparison. The ratios are left out from the last to the first."""
    drops = {ratio: len(ratios) - place + 2 for place, ratio in enumerate(ratios)}
    name, unit, statistic, *of_jobs = names
    return [
        Column(name, "name"),
        Column(unit, drop=1),
        Column(statistic, drop=2 if statistic == "statistic" else None),
        *(Column(label, "text", drop=drops.get(label)) for label in of_jobs),
    ]


def _statistics(stat: str) -> tuple[str, ...]:
    try:
        return summaries.statistics(stat)
    except ValueError as exc:
        raise click.UsageError(f"--stat: {exc}") from exc


def _summaries(view: View) -> dict[int, dict[Key, summaries.Summary]]:
    computed: dict[int, dict[Key, summaries.Summary]] = {}
    for page in view.pages():
        for row in page:
            of_job = computed.setdefault(view.owners[row.job_row], {})
            summary = of_job.setdefault((row.name, row.unit), summaries.Summary(name=row.name))
            summary.add(row.value, row.step, row.epoch)
    return {row: dict(sorted(of_job.items())) for row, of_job in computed.items()}


def _compared_statistics(
    view: View, stat: str | None
) -> list[tuple[tuple[str, str, object], Values]]:
    computed = _summaries(view)
    lines: list[tuple[tuple[str, str, object], Values]] = []
    for name, unit in sorted({key for of_job in computed.values() for key in of_job}):
        of_jobs = [computed.get(row, {}).get((name, unit)) for row in view.jobs]
        for statistic in _statistics(stat) if stat else (summaries.usual(name),):
            values = [None if summary is None else summary.of(statistic) for summary in of_jobs]
            lines.append(((name, unit, statistic), values))
    return lines


def _compared_values(view: View, by: str) -> list[tuple[tuple[str, str, object], Values]]:
    """Return the last value of each job at each step or epoch."""
    numbers = {row: number for number, row in enumerate(view.jobs)}
    lines: dict[tuple[str, str, int], Values] = {}
    for page in view.pages():
        for row in page:
            at = row.step if by == "step" else row.epoch
            if at is not None and row.name != by:
                values = lines.setdefault((row.name, row.unit, at), [None] * len(numbers))
                place = numbers[view.owners[row.job_row]]
                values[place] = math.nan if row.value is None else row.value
    return [(head, values) for head, values in sorted(lines.items())]


def plot(view: View, path: Path, by: str | None) -> bool:
    """Plot a figure for each name, with a line for each job; return whether there are metrics."""
    from orchestrator.reports import metric_figures

    plots.check(path)
    series = _plotted_lines(view)
    if not series:
        return False
    axis: metric_figures.Axis | None = by  # type: ignore[assignment]
    figures = metric_figures.build(series, axis)
    if not figures:
        raise errors.NotFoundError(f"none of these metrics has a {by or 'step'}")
    plots.save(path, figures, "choose with --name")
    return True


def _plotted_lines(view: View) -> list[Any]:
    from orchestrator.reports import metric_figures

    points: dict[tuple[str, str, int, int | None], list[metrics.MetricRow]] = {}
    for page in view.pages(MAX_POINTS):
        for row in page:
            points.setdefault((row.name, row.unit, row.job_row, row.rank), []).append(row)
    labels = {
        row: view.labels.get(row) or f"{naming.name_of(job)} {job.name}"
        for row, job in view.jobs.items()
    }
    return [
        metric_figures.Line(
            name=name, unit=unit, label=f"{labels[job_row]}{_of_rank(rank)}", points=of_series
        )
        for (name, unit, job_row, rank), of_series in sorted(
            points.items(), key=lambda item: item[0][:2]
        )
    ]


def write_parquet(view: View) -> int:
    """Write the fields of `--format json` and the job; return the number of rows."""
    assert view.out is not None, "--format parquet requires --output"
    kinds: dict[str, parquet.Kind] = {
        **dict.fromkeys(_PARQUET_COLUMNS, "int64"),
        **dict.fromkeys(("job_id", "job_name", "name", "unit", "source"), "string"),
        "value": "float64",
        "time": "time",
    }
    pages = ([_parquet_row(row, view.jobs[row.job_row]) for row in page] for page in view.pages())
    return parquet.write(view.out, kinds, pages)


def _parquet_row(row: metrics.MetricRow, job: jobs.Job) -> dict[str, Any]:
    return {**metric_rows.metric_row(row, job), "job_row": job.row, "job_name": job.name}
