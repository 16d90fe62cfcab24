"""Numbers as tables: the rows with a line drawn of each name, statistics, jobs side by side."""

from __future__ import annotations

import locale
import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

import click

from orchestrator import jobs, metrics
from orchestrator.cli import files, metric_options, output, views
from orchestrator.controller.metrics import queries
from orchestrator.controller.session import contexts
from orchestrator.metrics import summaries

#: Rows of a table for a person, unless so many were asked for.
MOST_SHOWN = 1000

Key = tuple[str, str]


def rows(
    context: contexts.Context,
    wanted: metrics.MetricQuery,
    by_row: Mapping[int, jobs.Job],
    asked: metric_options.Asked,
) -> bool:
    """Print rows as a table, and on a terminal how each name went; false where there are none."""
    thinned = asked.last is not None or asked.every is not None or asked.points is not None
    most = None if thinned or asked.out is not None else MOST_SHOWN
    count, pages = queries.newest(context, wanted, most)
    found = [row for page in pages for row in page]
    shown = [views.metric_row(row, by_row[row.job_row]) for row in found]
    with files.printing(asked.out):
        output.items("metrics", shown, views.METRIC_COLUMNS, "table")
    if count > len(found):
        context.reporter.info(
            f"The newest {len(found):,} of {count:,} rows; "
            "--last, --points, --steps or a pipe show others"
        )
    if asked.out is None and sys.stdout.isatty() and len(found) > 1:
        for line in _drawn(context, wanted, by_row):
            click.echo(line)
    return bool(found)


def _drawn(
    context: contexts.Context,
    wanted: metrics.MetricQuery,
    by_row: Mapping[int, jobs.Job],
) -> Iterable[str]:
    """Yield a line for each series that has several numbers, how they went from left to right."""
    glyphs = summaries.BLOCKS if _knows_blocks() else summaries.ASCII
    series: dict[tuple[int, str, str, int | None], list[float | None]] = {}
    # Beside the name and the ends; a line that is folded would be none.
    room = min(max(shutil.get_terminal_size().columns - 56, 8), 48)
    for page in queries.pages(context, queries.thinned(wanted, room)):
        for row in page:
            of = (row.job_row, row.name, row.unit, row.rank)
            series.setdefault(of, []).append(row.value)
    several = {key: values for key, values in series.items() if len(set(values)) > 1}
    heads = {}
    for key in several:
        job_row, name, _, rank = key
        job = f"{_label(by_row[job_row])} " if len(by_row) > 1 else ""
        heads[key] = f"{job}{name}" + ("" if rank is None else f" rank {rank}")
    wide = max(map(len, heads.values()), default=0)
    if several:
        yield ""
    for key, values in several.items():
        finite = [value for value in values if value is not None and math.isfinite(value)]
        low, high = min(finite, default=math.nan), max(finite, default=math.nan)
        line = summaries.sparkline(values, glyphs)
        yield f"{heads[key]:<{wide}}  {line}  {low:.6g} to {high:.6g} {key[2]}".rstrip()


def _knows_blocks() -> bool:
    # What is printed is UTF-8 whatever LANG says; a terminal that is not would show garbage.
    return locale.nl_langinfo(locale.CODESET).upper().replace("-", "") == "UTF8"


def summarise(
    context: contexts.Context,
    wanted: metrics.MetricQuery,
    found: Sequence[jobs.Job],
    asked: metric_options.Asked,
    form: str,
) -> bool:
    """Print a row for each job, name and unit; false where there is none."""
    asked_for = _statistics(asked)
    made = _summaries(context, wanted)
    shown: list[dict[str, object]] = []
    for job in found:
        for (name, unit), summary in made.get(job.row, {}).items():
            told: dict[str, object] = {one: summary.of(one) for one in asked_for}
            if "best" in told:
                told |= {"best_step": summary.best_step, "best_epoch": summary.best_epoch}
            shown.append(
                {
                    "job_row": job.row,
                    "job_id": job.job_id,
                    "array_task_id": job.array_task_id,
                    "job_name": job.name,
                    "name": name,
                    "unit": unit,
                    **told,
                }
            )
    columns = ["job_id", "name", "unit", *asked_for]
    _show("metric_statistics", shown, columns, asked, form)
    return bool(shown)


def compare(
    context: contexts.Context,
    wanted: metrics.MetricQuery,
    found: Sequence[jobs.Job],
    asked: metric_options.Asked,
    form: str,
) -> bool:
    """Print jobs side by side, each with its ratio to the first; false where there is nothing."""
    if len(found) < 2:
        raise click.UsageError("--compare is for two or more jobs")
    if asked.by is not None and asked.stat is not None:
        raise click.UsageError("--by prints the numbers themselves: leave out --stat")
    made: list[tuple[dict[str, object], list[float | int | None]]]
    if asked.by is None:
        made = _statistics_of_each(_summaries(context, wanted), found, asked)
    else:
        made = _places_of_each(context, wanted, found, asked.by)
    heads = ["name", "unit", "statistic" if asked.by is None else asked.by]
    if output.is_json(form):
        items = [{**head, "jobs": _in_json(found, values)} for head, values in made]
        _show("metric_comparison", items, heads, asked, form)
        return bool(made)
    labels = [_label(job) for job in found]
    ratios = [f"{label}/{labels[0]}" for label in labels[1:]]
    columns = [*heads, labels[0]]
    for label, quotient in zip(labels[1:], ratios, strict=True):
        columns += [label, quotient]
    shown = []
    for head, values in made:
        quotients = (summaries.ratio(value, values[0]) for value in values[1:])
        shown.append(
            {
                **head,
                **dict(zip(labels, values, strict=True)),
                **dict(zip(ratios, quotients, strict=True)),
            }
        )
    _show("metric_comparison", shown, columns, asked, form)
    return bool(made)


def _statistics(asked: metric_options.Asked) -> tuple[str, ...]:
    try:
        return summaries.statistics(asked.stat or "")
    except summaries.UnknownStatisticError as exc:
        raise click.UsageError(f"--stat: {exc}") from exc


def _summaries(
    context: contexts.Context, wanted: metrics.MetricQuery
) -> dict[int, dict[Key, summaries.Summary]]:
    made: dict[int, dict[Key, summaries.Summary]] = {}
    for page in queries.pages(context, wanted):
        for row in page:
            mine = made.setdefault(row.job_row, {})
            key = (row.name, row.unit)
            if key not in mine:
                mine[key] = summaries.Summary(name=row.name)
            mine[key].add(row.value, row.step, row.epoch)
    return {row: dict(sorted(mine.items())) for row, mine in made.items()}


def _statistics_of_each(
    made: Mapping[int, Mapping[Key, summaries.Summary]],
    found: Sequence[jobs.Job],
    asked: metric_options.Asked,
) -> list[tuple[dict[str, object], list[float | int | None]]]:
    of_each = [made.get(job.row, {}) for job in found]
    lines: list[tuple[dict[str, object], list[float | int | None]]] = []
    for name, unit in sorted({key for mine in of_each for key in mine}):
        for one in _statistics(asked) if asked.stat else (summaries.usual(name),):
            values = [
                mine[name, unit].of(one) if (name, unit) in mine else None for mine in of_each
            ]
            lines.append(({"name": name, "unit": unit, "statistic": one}, values))
    return lines


def _places_of_each(
    context: contexts.Context,
    wanted: metrics.MetricQuery,
    found: Sequence[jobs.Job],
    by: str,
) -> list[tuple[dict[str, object], list[float | int | None]]]:
    """Return the number of each job at each step or epoch: the last that was told of it."""
    columns = {job.row: place for place, job in enumerate(found)}
    lines: dict[tuple[str, str, int], list[float | int | None]] = {}
    for page in queries.pages(context, wanted):
        for row in page:
            at = row.step if by == "step" else row.epoch
            # A step's own number is no news at that step.
            if at is not None and row.name != by:
                line = lines.setdefault((row.name, row.unit, at), [None] * len(found))
                line[columns[row.job_row]] = math.nan if row.value is None else row.value
    made = []
    for (name, unit, at), values in sorted(lines.items()):
        head: dict[str, object] = {"name": name, "unit": unit, by: at}
        made.append((head, values))
    return made


def _in_json(
    found: Sequence[jobs.Job], values: Sequence[float | int | None]
) -> list[dict[str, object]]:
    return [
        {
            "job_row": job.row,
            "job_id": job.job_id,
            "value": value,
            "ratio": summaries.ratio(value, values[0]),
        }
        for job, value in zip(found, values, strict=True)
    ]


def _label(job: jobs.Job) -> str:
    return job.job_id or f"@{job.row}"


def _show(
    kind: str,
    shown: Sequence[Mapping[str, object]],
    columns: Sequence[str],
    asked: metric_options.Asked,
    form: str,
) -> None:
    if form == "table":
        # Six digits tell people enough, and a column of them can be looked down.
        shown = [{key: _short(value) for key, value in row.items()} for row in shown]
    with files.printing(asked.out):
        output.items(kind, shown, columns, form)


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
