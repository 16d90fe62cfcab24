"""orchestrator metrics."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator import jobs, metrics
from orchestrator.cli import completion, options, output, session
from orchestrator.cli.output import job_rows, terminal
from orchestrator.controller.metrics import ingest, queries
from orchestrator.controller.session import contexts

FORMATS = (*output.FORMATS, "parquet")
#: Seconds between two reads of the files of live jobs with --follow.
_POLL_SECONDS = 1.0
_REPARSE_COLUMNS = ("job_id", "path", "before", "after", "kept")
_COUNT = click.IntRange(min=1, max=10**9)
_INDEX = click.IntRange(min=0, max=10**9)


class _JobsArgument(click.Argument):
    """[JOB...], which subcommand_metavar shows."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []


class _JobsOrSubcommand(click.Group):
    """A command that takes jobs, unless the first word is a subcommand."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **kw: Any
    ) -> click.Context:
        if args and args[0] in self.commands:
            group = click.Group(self.name, self.commands)
            return group.make_context(info_name, args, parent, **kw)
        return super().make_context(info_name, args, parent, **kw)


_OPTIONS = (
    click.argument(
        "references", nargs=-1, cls=_JobsArgument, shell_complete=completion.job_references
    ),
    options.sweeps_option,
    options.option(
        "--name", "Only this metric: throughput, 'val_*', ...", "NAME", dest="names", multiple=True
    ),
    options.option(
        "--steps", "Only steps A to B: 100:200, 100:.", options.number_range, metavar="A:B"
    ),
    options.option("--epochs", "Only epochs A to B.", options.number_range, metavar="A:B"),
    options.option("--since", "Only metrics logged since this time.", options.time),
    options.option("--until", "Only metrics logged until this time.", options.time),
    options.option("--attempt", "Only this attempt, from 0. Default: all.", _INDEX),
    options.option("--rank", "Only this rank.", _INDEX),
    options.option(
        "--source",
        "Where metrics come from. auto: metrics.jsonl if it has the name, otherwise the log.",
        click.Choice(["auto", "log", "jsonl"]),
        default="auto",
    ),
    options.option("--last", "Only the last N of each name and rank.", _COUNT),
    options.option("--every", "Only every Nth of each name.", _COUNT),
    options.option("--points", "Only N of each name, evenly distributed.", _COUNT),
    options.option(
        "--stat",
        "Print statistics of each name: count, nan, first, last, mean, std, min, median, "
        "max, best, p5, p95, any percentile, or all.",
        "LIST",
    ),
    options.option("--compare", "Print two or more jobs side by side."),
    options.option(
        "--by",
        "With --compare: one row for each step or epoch. With --plot: the x axis.",
        click.Choice(["step", "epoch", "time"]),
    ),
    options.option(
        "--plot",
        "Plot into FILE.svg, .png or .pdf (needs the extra `plot`).",
        click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
    ),
    options.option("-f --follow", "Print new metrics until the jobs end."),
    options.formats_option(
        FORMATS, "the suffix of --output; table on a terminal, otherwise tsv; parquet needs pyarrow"
    ),
    options.option(
        "-o --output",
        "Write to FILE instead of stdout.",
        click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        dest="out",
    ),
)


def _metric_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.group(
    "metrics",
    cls=_JobsOrSubcommand,
    invoke_without_command=True,
    no_args_is_help=False,
    context_settings={"allow_interspersed_args": True},
    subcommand_metavar="[JOB...] | reparse ...",
)
@_metric_options
@click.pass_context
def show_metrics(
    ctx: click.Context,
    /,
    references: tuple[str, ...],
    sweeps: tuple[str, ...],
    form: str | None,
    out: Path | None,
    follow: bool,
    stat: str | None,
    compare: bool,
    plot: Path | None,
    by: str | None,
    **filters: Any,
) -> None:
    """Show metrics parsed from job logs.

    Metrics also come from metrics.jsonl. New log lines are read first. The oldest metric is printed
    first. To name a job that is called like a subcommand, write it after `--`.

    \b
    Examples:
      orchestrator metrics 123 --name throughput
      orchestrator metrics digits-ddp --last 1 --json
      orchestrator metrics 123 --stat median,p5,p95
      orchestrator metrics 123 124 --compare --name 'val_*' --by epoch
      orchestrator metrics --sweep digits-scaling --name loss --plot loss.svg
      orchestrator metrics 123 -f --name loss
      orchestrator metrics 123 --output numbers.parquet
    """
    modes = {"--stat": stat, "--compare": compare, "--plot": plot, "--follow": follow}
    given = [option for option, value in modes.items() if value]
    problems = {
        "--plot writes a picture: remove --format and --output": plot and (out or form),
        f"{' and '.join(given[:2])} cannot be combined": (
            len(given) > 1 and given != ["--stat", "--compare"]
        ),
        "--every and --points cannot be combined": filters["every"] and filters["points"],
        "--by requires --compare or --plot": by and not (compare or plot),
        "--compare requires --by step or epoch: two jobs never log at the same time": (
            compare and by == "time"
        ),
    }
    form = _format(form, out)
    problems |= {
        f"parquet contains single metrics: remove {' '.join(given)}, or write csv": (
            form == "parquet" and given
        ),
        "--follow prints rows as they arrive: use --format jsonl, and remove --output, --every "
        "and --points": (
            follow and (form == "json" or out or filters["points"] or filters["every"])
        ),
    }
    for problem, applies in problems.items():
        if applies:
            raise click.UsageError(problem)
    context = session.open_context(ctx)
    selected = session.jobs_and_sweeps(context, references, sweeps)
    by_row = {job.row: job for job in selected}
    query = _query(by_row, **filters)
    if follow:
        _follow(context, query, by_row, form)
        return
    ingest.ingest_for_command(context, selected)
    if form not in ("table", "parquet") and not given:
        has_rows = _print_rows(queries.pages(context, query), by_row, form, out)
    else:
        from orchestrator.cli.output import metric_tables

        view = metric_tables.View(context=context, query=query, jobs=selected, out=out)
        if plot is not None:
            has_rows = metric_tables.plot(view, plot, by)
        elif compare:
            has_rows = metric_tables.compare(view, stat, by, form)
        elif stat is not None:
            has_rows = metric_tables.print_statistics(view, stat, form)
        elif form == "parquet":
            has_rows = metric_tables.write_parquet(view)
        else:
            has_rows = metric_tables.print_table(view)
    if has_rows:
        return
    narrowing = ("names", "steps", "epochs", "since", "until", "attempt", "rank", "source")
    if all(filters[name] in (None, (), "auto") for name in narrowing):
        output.note(
            "No metrics: no line of the log matches a pattern (spec key metrics.patterns; "
            "`orchestrator logs` prints the log)"
        )
    else:
        names = ", ".join(queries.names(context, list(by_row))) or "none"
        output.note(f"No metrics match. Names of these jobs' metrics: {names}")


def _query(
    rows: Iterable[int],
    *,
    steps: tuple[int | None, int | None] | None,
    epochs: tuple[int | None, int | None] | None,
    source: str,
    **filters: Any,
) -> metrics.MetricQuery:
    first_step, last_step = steps or (None, None)
    first_epoch, last_epoch = epochs or (None, None)
    return metrics.MetricQuery(
        job_rows=tuple(rows),
        first_step=first_step,
        last_step=last_step,
        first_epoch=first_epoch,
        last_epoch=last_epoch,
        source=None if source == "auto" else source,
        prefer_jsonl=source == "auto",
        **filters,
    )


def _format(form: str | None, out: Path | None) -> str:
    if form is None and out is not None:
        form = out.suffix.removeprefix(".")
        if form not in FORMATS:
            suffixes = ", ".join(f".{name}" for name in FORMATS if name != "table")
            raise click.UsageError(
                f"--output {out}: unknown suffix; use --format, or one of {suffixes}"
            )
    if form == "parquet" and out is None:
        raise click.UsageError("--format parquet requires --output FILE.parquet")
    return form or output.default_format()


def _print_rows(
    pages: Iterator[list[metrics.MetricRow]],
    by_row: Mapping[int, jobs.Job],
    form: str,
    out: Path | None,
) -> bool:
    """Print rows page by page; return whether there are any."""
    first = next(pages, [])
    rows = (
        [job_rows.metric_row(row, by_row[row.job_row]) for row in page]
        for page in itertools.chain([first], pages)
    )
    terminal.print_texts(output.texts("metrics", rows, job_rows.METRIC_COLUMNS, form), out)
    return bool(first)


def _follow(
    context: contexts.Context, query: metrics.MetricQuery, by_row: dict[int, jobs.Job], form: str
) -> None:
    """Print new metrics until all jobs have ended and their files are read to the end."""
    # It imports everything that talks to Slurm.
    from orchestrator.controller.actions import wait

    if form in ("csv", "tsv"):
        click.echo("".join(output.texts("metrics", [], job_rows.METRIC_COLUMNS, form)), nl=False)
    while True:
        # Before reading: lines that were written before the end are then certainly read.
        is_live = wait.update(context, by_row)
        deadline = context.deadline.within(ingest.LOOK_SECONDS)
        ingested = ingest.ingest_or_warn(context, list(by_row.values()), deadline=deadline)
        for page in queries.pages(context, query):
            newest = max((row.id for row in page), default=0)
            query = dataclasses.replace(query, after=max(newest, query.after or 0))
            rows = [job_rows.metric_row(row, by_row[row.job_row]) for row in page]
            click.echo(_without_header(rows, form), nl=False)
        # --last limits only the metrics that existed at the start.
        query = dataclasses.replace(query, last=None)
        if ingested.unread:
            continue
        if not is_live:
            return
        context.clock.sleep(_POLL_SECONDS)


def _without_header(rows: Sequence[output.Row], form: str) -> str:
    if form == "table":
        return "".join(f"{_line(row)}\n" for row in rows)
    texts = output.texts("metrics", [rows], job_rows.METRIC_COLUMNS, form)
    if form in ("csv", "tsv"):
        next(texts)
    return "".join(texts)


def _line(row: output.Row) -> str:
    """Return a row of a table whose later rows are not known yet."""
    at = " ".join(
        f"{name} {row[name]}"
        for name in ("epoch", "step", "rank")
        if row[name] is not None and row["name"] != name
    )
    value = f"{output.cell(row['value'])} {row['unit']}".rstrip()
    return f"{row['job_id'] or '':<10} {row['name']:<20} {value:<28} {at}".rstrip()


@show_metrics.command("reparse")
@options.jobs_argument
@options.sweeps_option
@options.option(
    "--pattern",
    "Use this pattern instead of those of the spec.",
    "NAME",
    dest="patterns",
    multiple=True,
)
@options.format_option
@session.with_context
def reparse(
    context: contexts.Context,
    references: tuple[str, ...],
    sweeps: tuple[str, ...],
    patterns: tuple[str, ...],
    form: str,
) -> None:
    """Parse logs again with the current patterns.

    The new metrics replace the old ones in one step. If a log was deleted or truncated, its old
    metrics are kept. Metrics from metrics.jsonl are not affected.

    \b
    Examples:
      orchestrator metrics reparse 123
      orchestrator metrics reparse --sweep digits-scaling --pattern olivia
    """
    from orchestrator.controller.metrics import reparse

    selected = session.jobs_and_sweeps(context, references, sweeps)
    rows = [
        {
            "job_row": log.job.row,
            "job_id": log.job.job_id,
            **output.fields_of(log, ("path", "before", "after", "kept")),
        }
        for log in reparse.reparse(context, selected, patterns)
    ]
    output.print_rows("reparsed", rows, _REPARSE_COLUMNS, form)
    if not rows:
        output.note("No metrics: these jobs have no logs yet, or no line matches a pattern")
