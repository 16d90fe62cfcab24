"""orchestrator metrics."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from orchestrator import jobs, metrics
from orchestrator.cli import files, metric_options, output, session, views
from orchestrator.controller.metrics import pages as numbers
from orchestrator.controller.session import contexts

#: Seconds between two looks at the files of running jobs.
LOOK_SECONDS = 1.0


class JobsOrSubcommand(click.Group):
    """A command that takes jobs, unless its first word is one of its subcommands.

    A job of such a name comes after `--`. `modules`: subcommand -> module, loaded when it is used.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        module = importlib.import_module(f"orchestrator.cli.{self.modules[cmd_name]}")
        found = module.command
        assert isinstance(found, click.Command)
        return found

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and args[0] in self.modules:
            inner = JobsOrSubcommand(self.name, modules=self.modules)
            inner.invoke_without_command = False
            return click.Group.make_context(inner, info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.group(
    cls=JobsOrSubcommand,
    modules={"reparse": "metrics_reparse"},
    invoke_without_command=True,
    no_args_is_help=False,
    context_settings={"allow_interspersed_args": True},
    subcommand_metavar="[JOB...] | reparse ...",
    short_help="Print the numbers that jobs' logs told.",
)
@metric_options.options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Print the numbers that jobs' logs and metrics.jsonl told, oldest first.

    What the logs got since the last look is read first; nothing is read twice. A job that is named
    as a subcommand comes after `--`.

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
    asked = metric_options.Asked(**options)
    form = metric_options.form(asked)
    _refuse(asked, form)
    context = session.open_context(ctx)
    found = metric_options.chosen_jobs(context, asked)
    by_row = {job.row: job for job in found}
    wanted = metric_options.query(context, asked, [*by_row])
    if asked.follow:
        _follow(context, wanted, by_row, form)
        return
    numbers.read_new(context, found)
    if asked.plot is not None:
        from orchestrator.cli import metric_plots

        some = metric_plots.plot(context, wanted, found, asked.plot, asked.by)
    elif asked.compare or asked.stat is not None:
        from orchestrator.cli import metric_tables

        show = metric_tables.compare if asked.compare else metric_tables.summarise
        some = show(context, wanted, found, asked, form)
    elif form == "table":
        from orchestrator.cli import metric_tables

        some = metric_tables.rows(context, wanted, by_row, asked)
    elif form == "parquet":
        from orchestrator.cli import parquet

        assert asked.out is not None, "refused before"
        some = parquet.write(asked.out, numbers.pages(context, wanted), by_row)
    else:
        some = _print(numbers.pages(context, wanted), by_row, asked, form)
    if not some:
        _tell_none(context, asked, [*by_row])


def _refuse(asked: metric_options.Asked, form: str) -> None:
    modes = {
        "--stat": asked.stat is not None,
        "--compare": asked.compare,
        "--plot": asked.plot is not None,
        "--follow": asked.follow,
    }
    given = [option for option, is_given in modes.items() if is_given]
    if len(given) > 1 and given != ["--stat", "--compare"]:
        raise click.UsageError(f"{given[0]} and {given[1]} are two things: say one")
    if asked.by is not None and not (asked.compare or asked.plot):
        raise click.UsageError("--by is for --compare and --plot")
    if asked.compare and asked.by == "time":
        raise click.UsageError("--compare --by step or epoch: no two jobs print at the same time")
    if form == "parquet" and given:
        raise click.UsageError(f"parquet holds rows: leave out {given[0]}, or write csv")
    if asked.plot is not None and (asked.out or asked.format_ or asked.as_json):
        raise click.UsageError("--plot FILE writes a picture: leave out --format and --output")
    if asked.follow and (form == "json" or asked.out is not None or asked.points or asked.every):
        raise click.UsageError(
            "--follow prints rows as they come: --format jsonl for programs, and neither "
            "--output, --every nor --points"
        )


def _print(
    pages: Iterator[list[metrics.MetricRow]],
    by_row: dict[int, jobs.Job],
    asked: metric_options.Asked,
    form: str,
) -> bool:
    """Print rows page by page; false where there were none."""
    first = next(pages, [])
    shown = (
        [views.metric_row(row, by_row[row.job_row]) for row in page]
        for page in itertools.chain([first], pages)
    )
    files.put(asked.out, output.texts("metrics", shown, views.METRIC_COLUMNS, form))
    return bool(first)


def _follow(
    context: contexts.Context,
    wanted: metrics.MetricQuery,
    by_row: dict[int, jobs.Job],
    form: str,
) -> None:
    """Print rows as they come, until all jobs have ended and their files are read to the end."""
    # What asks Slurm takes as long to load as all the rest.
    from orchestrator.controller.actions import wait

    texts = _lines if form == "table" else _texts_without_head
    if form in ("csv", "tsv"):
        click.echo("".join(output.texts("metrics", [], views.METRIC_COLUMNS, form)), nl=False)
    while True:
        # Asked before reading: what was written before the end is then read for certain.
        is_live = wait.update(context, by_row)
        is_behind = numbers.read_part(context, [*by_row.values()])
        for page in numbers.pages(context, wanted):
            newest = max((row.id for row in page), default=0)
            wanted = dataclasses.replace(wanted, after=max(newest, wanted.after or 0))
            rows = [views.metric_row(row, by_row[row.job_row]) for row in page]
            click.echo(texts(rows, form), nl=False)
        # What was there before is cut; of what comes each row is shown.
        wanted = dataclasses.replace(wanted, last=None)
        if is_behind:
            continue
        if not is_live:
            return
        context.clock.sleep(LOOK_SECONDS)


def _texts_without_head(rows: Sequence[output.Row], form: str) -> str:
    made = output.texts("metrics", [rows], views.METRIC_COLUMNS, form)
    if form in ("csv", "tsv"):
        next(made)
    return "".join(made)


def _lines(rows: Iterable[output.Row], form: str) -> str:
    """Return rows as lines of one width, whatever comes next."""
    lines = []
    for row in rows:
        places = " ".join(
            f"{name} {row[name]}"
            for name in ("epoch", "step", "rank")
            if row[name] is not None and row["name"] != name
        )
        number = f"{output.cell(row['value'])} {row['unit']}".rstrip()
        lines.append(f"{row['job_id'] or '':<10} {row['name']:<20} {number:<28} {places}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def _tell_none(context: contexts.Context, asked: metric_options.Asked, rows: Sequence[int]) -> None:
    if asked.is_narrow:
        others = numbers.names(context, rows)
        told = f"there are {', '.join(others)}" if others else "there are no others either"
        context.reporter.info(f"no such metrics; {told}")
    else:
        context.reporter.info(
            "no metrics: the log has no line that a pattern knows "
            "(spec key metrics.patterns; `orchestrator logs` shows the log)"
        )
