"""orchestrator metrics."""

from __future__ import annotations

import dataclasses
import datetime
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator import metrics
from orchestrator.cli import commands, metric_exports, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column, metric_tables
from orchestrator.controller.metrics import ingest
from orchestrator.controller.recovery import chains
from orchestrator.controller.session import contexts, selection
from orchestrator.controller.sweeps import results
from orchestrator.rows import row_values

FORMATS = (*output.FORMATS, "parquet")
#: Seconds between two reads of the files of live jobs with --follow.
_POLL_SECONDS = 1.0
_REPARSE_COLUMNS = (
    Column("job_id"),
    Column("path", "parts", drop=1),
    Column("before"),
    Column("after"),
    Column("kept"),
)

#: Its ends; None: open.
Range = tuple[int | None, int | None]


class _JobsArgument(click.Argument):
    """[JOB...], which subcommand_metavar shows."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []


class _JobsOrSubcommand(commands.Group):
    """A command that takes jobs, unless the first word is a subcommand."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **kw: Any
    ) -> click.Context:
        if args and args[0] in self.commands:
            group = click.Group(self.name, self.commands)
            return group.make_context(info_name, args, parent, **kw)
        return super().make_context(info_name, args, parent, **kw)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricFilter:
    """Which metrics are shown. The fields without a range are those of MetricQuery."""

    names: tuple[str, ...] = option(
        "--name", "Only this metric: throughput, 'val_*', ...", "NAME", multiple=True
    )
    steps: Range | None = option(
        "--steps", "Only steps A to B: 100:200, 100:.", value_types.number_range, metavar="A:B"
    )
    epochs: Range | None = option(
        "--epochs", "Only epochs A to B.", value_types.number_range, metavar="A:B"
    )
    since: datetime.datetime | None = option(
        "--since", "Only metrics logged since this time.", value_types.time
    )
    until: datetime.datetime | None = option(
        "--until", "Only metrics logged until this time.", value_types.time
    )
    attempt: int | None = option(
        "--attempt", "Only this attempt, from 0. Default: all.", value_types.INDEX
    )
    rank: int | None = option("--rank", "Only this rank.", value_types.INDEX)
    source: str = option(
        "--source",
        "Where metrics come from. auto: metrics.jsonl if it has the name, otherwise the log.",
        click.Choice(["auto", "log", "jsonl"]),
        default="auto",
    )
    last: int | None = option("--last", "Only the last N of each name and rank.", value_types.COUNT)
    every: int | None = option("--every", "Only every Nth of each name.", value_types.COUNT)
    points: int | None = option(
        "--points", "Only N of each name, evenly distributed.", value_types.COUNT
    )

    def query(self, rows: Iterable[int]) -> metrics.MetricQuery:
        fields = dict(vars(self))
        first_step, last_step = fields.pop("steps") or (None, None)
        first_epoch, last_epoch = fields.pop("epochs") or (None, None)
        is_auto = fields.pop("source") == "auto"
        return metrics.MetricQuery(
            job_rows=tuple(rows),
            first_step=first_step,
            last_step=last_step,
            first_epoch=first_epoch,
            last_epoch=last_epoch,
            source=None if is_auto else self.source,
            prefer_jsonl=is_auto,
            **fields,
        )

    @property
    def selects_all(self) -> bool:
        """Whether metrics may only be thinned out."""
        kept = {**vars(self), "last": None, "every": None, "points": None}
        return all(value in (None, (), "auto") for value in kept.values())


@commands.command(
    "metrics",
    "orchestrator metrics 123 --name throughput",
    "orchestrator metrics digits-ddp --last 1 --json",
    "orchestrator metrics 123 --stat median,p5,p95",
    "orchestrator metrics 123 124 --compare --name 'val_*' --by epoch",
    "orchestrator metrics --sweep digits-scaling --name loss --plot loss.svg",
    "orchestrator metrics 123 -f --name loss",
    "orchestrator metrics 123 --output numbers.parquet",
    invoke_without_command=True,
    no_args_is_help=False,
    table=metric_tables.COLUMNS,
    context_settings={"allow_interspersed_args": True},
    subcommand_metavar="[JOB...] | export ... | reparse ...",
    kind=_JobsOrSubcommand,
    changes="nothing",
    prints=("metrics", "metric_statistics", "metric_comparison"),
)
def show_metrics(
    ctx: click.Context,
    references: tuple[str, ...] = argument(
        nargs=-1, kind=_JobsArgument, shell_complete=options.complete("job_references")
    ),
    sweeps: tuple[str, ...] = options.sweeps,
    metric_filter: MetricFilter = commands.record(MetricFilter),
    stat: str | None = option(
        "--stat",
        "Print statistics of each name: count, nan, first, last, mean, std, min, median, "
        "max, best, p5, p95, any percentile, or all.",
        "LIST",
    ),
    compare: bool = option(
        "--compare",
        "Print two or more jobs side by side, each with the jobs that it continues or that "
        "continue it. On a terminal that is too narrow: one below the other.",
    ),
    by: str | None = option(
        "--by",
        "With --compare: one row for each step or epoch. With --plot: the x axis.",
        click.Choice(["step", "epoch", "time"]),
    ),
    plot: Path | None = option(
        "--plot",
        "Plot into FILE.svg, .png or .pdf (needs matplotlib).",
        value_types.OUTPUT_FILE,
    ),
    follow: bool = option("-f --follow", "Print new metrics until the jobs end."),
    form: str | None = options.optional_form_of(
        FORMATS, "the suffix of --output; table on a terminal, otherwise tsv; parquet needs pyarrow"
    ),
    out: Path | None = option(
        "-o --output", "Write to FILE instead of stdout.", value_types.OUTPUT_FILE
    ),
) -> None:
    """Show metrics parsed from job logs.

    Metrics also come from metrics.jsonl. New log lines are read first. The oldest metric is printed
    first. If a job has the name of a subcommand, write it after `--`.
    """
    modes = {"--stat": stat, "--compare": compare, "--plot": plot, "--follow": follow}
    given = [name for name, value in modes.items() if value]
    is_thinned = metric_filter.points or metric_filter.every
    is_two = len(given) > 1 and given != ["--stat", "--compare"]
    problems: dict[str, object] = {
        "--plot writes a picture: remove --format and --output": plot and (out or form),
        f"{' and '.join(given[:2])} cannot be combined": is_two,
        "--every and --points cannot be combined": metric_filter.every and metric_filter.points,
        "--by requires --compare or --plot": by and not (compare or plot),
        "--compare cannot be combined with --by time: use --by step or --by epoch": (
            compare and by == "time"
        ),
    }
    form = options.format_of_file(form, out, FORMATS)
    problems |= {
        f"parquet contains single metrics: remove {' '.join(given)}, or write csv": (
            form == "parquet" and given
        ),
        "--follow prints rows as they arrive: use --format jsonl, and remove --output, --every "
        "and --points": follow and (form == "json" or out or is_thinned),
    }
    options.refuse(problems)
    context = session.open_context(ctx)
    selected = selection.jobs_and_sweeps(context, references, sweeps)
    by_row = {job.row: job for job in selected}
    owners = {job.row: job.row for job in selected}
    members = selected
    if compare:
        with context.store.reading() as work:
            owners = chains.owners(work, selected)
            members = list(work.jobs.by_row(list(owners)).values())
    view = metric_tables.View(
        context=context,
        query=metric_filter.query(owners),
        jobs=by_row,
        owners=owners,
        out=out,
        labels=results.labels(context, selected) if compare or plot or form == "table" else {},
    )
    if follow:
        _follow(view, form)
        return
    ingest.ingest_for_command(context, members)
    if plot is not None:
        total = int(metric_tables.plot(view, plot, by))
    elif compare:
        total = metric_tables.compare(view, stat, by, form)
    elif stat is not None:
        total = metric_tables.print_statistics(view, stat, form)
    elif form == "parquet":
        total = metric_tables.write_parquet(view)
    elif form == "table":
        total = metric_tables.print_table(view)
    else:
        pages = view.row_pages()
        total = output.print_pages("metrics", pages, metric_tables.COLUMNS, form, out)
    if compare:
        from orchestrator.controller.reproduction import comparing

        for text in comparing.notes(context, selected):
            output.note(text)
    if out is not None:
        output.note(f"Wrote {output.count(total, 'row')} to {out}")
    if total:
        return
    from orchestrator.controller.prune import marks

    for pruned in filter(None, (marks.note(context, job) for job in selected)):
        output.note(f"Note: {pruned}; only metrics that were read before are stored.")
    if metric_filter.selects_all:
        output.note(
            "No metrics: no line of the log matches a pattern. Lines such as `step 10 loss 2.31` "
            "do; for others see docs/howto/metrics.md. `orchestrator logs` prints the log"
        )
    else:
        with context.store.reading() as work:
            names = ", ".join(work.metrics.names(list(by_row))) or "none"
        output.note(f"No metrics match. Names of these jobs' metrics: {names}")


def _follow(view: metric_tables.View, form: str) -> None:
    """Print new metrics until all jobs have ended and their files are read to the end."""
    # It imports everything that talks to Slurm.
    from orchestrator.controller.actions import wait

    context, by_row = view.context, dict(view.jobs)
    if form in ("csv", "tsv"):
        click.echo("".join(output.texts("metrics", [], metric_tables.COLUMNS, form)), nl=False)
    while True:
        # Before reading: lines that were written before the end are then certainly read.
        is_live = wait.update(context, by_row)
        deadline = context.deadline.within(ingest.LOOK_SECONDS)
        ingested = ingest.ingest_or_warn(context, list(by_row.values()), deadline=deadline)
        newest = view.query.after or 0
        for rows in view.row_pages():
            newest = max([newest, *(row["row"] for row in rows)])
            click.echo(_without_header(rows, form), nl=False)
        # --last limits only the metrics that existed at the start.
        query = dataclasses.replace(view.query, after=newest, last=None)
        view = dataclasses.replace(view, query=query)
        if ingested.unread:
            continue
        if not is_live:
            return
        context.clock.sleep(_POLL_SECONDS)


def _without_header(rows: Sequence[output.Row], form: str) -> str:
    if form == "table":
        return "".join(f"{_line(row)}\n" for row in rows)
    texts = output.texts("metrics", [rows], metric_tables.COLUMNS, form)
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
    text = row_values.number(row["value"]) if sys.stdout.isatty() else row_values.cell(row["value"])
    value = f"{text} {row['unit']}".rstrip()
    return f"{row['job_id'] or '':<10} {row['name']:<20} {value:<28} {at}".rstrip()


@commands.command(
    "reparse",
    "orchestrator metrics reparse 123",
    "orchestrator metrics reparse --sweep digits-scaling --pattern olivia",
    changes="other",
    prints=("reparsed",),
)
def reparse(
    context: contexts.Context,
    references: tuple[str, ...] = options.references,
    sweeps: tuple[str, ...] = options.sweeps,
    patterns: tuple[str, ...] = option(
        "--pattern", "Use this pattern instead of those of the spec.", "NAME", multiple=True
    ),
    form: str = options.form,
) -> None:
    """Parse logs again with the current patterns.

    The new metrics replace the old ones in one step. If a log was deleted or truncated, its old
    metrics are kept. Metrics from metrics.jsonl are not affected.
    """
    from orchestrator.controller.metrics import reparse

    selected = selection.jobs_and_sweeps(context, references, sweeps)
    rows = [
        {
            "job_row": log.job.row,
            "job_id": log.job.job_id,
            **row_values.fields_of(log, ("path", "before", "after", "kept")),
        }
        for log in reparse.reparse(context, selected, patterns)
    ]
    output.print_rows("reparsed", rows, _REPARSE_COLUMNS, form)
    if not rows:
        output.note("No metrics: these jobs have no logs yet, or no line matches a pattern")


show_metrics.add_command(metric_exports.export)
show_metrics.add_command(reparse)
