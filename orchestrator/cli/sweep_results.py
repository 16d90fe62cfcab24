"""orchestrator sweep results."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from orchestrator import errors
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import Column, plots, result_tables
from orchestrator.controller.refresh import on_demand
from orchestrator.controller.reproduction import comparing
from orchestrator.controller.sweeps import queries
from orchestrator.controller.sweeps import results as reading
from orchestrator.sweeps import result_notes, results

FORMATS = (*output.FORMATS, "markdown", "parquet")


@commands.command(
    "results",
    "orchestrator sweep results digits-grid --metric val_accuracy --best 5",
    "orchestrator sweep results digits-grid --metric val_accuracy:best --metric loss@val_accuracy",
    "orchestrator sweep results digits-grid --metric val_loss --plot lr.svg",
    "orchestrator sweep results digits-grid --metric reward --direction max --output results.csv",
    table=[
        Column(name, drop=number) for number, name in enumerate(result_tables.LEFT_OUT, start=1)
    ],
    changes="nothing",
    prints=("sweep_results",),
)
def show_results(
    ctx: click.Context,
    reference: str = options.sweep,
    metrics: tuple[str, ...] = option(
        "--metric",
        "Show this metric: its last value, for rates and times the median; NAME:best, NAME:mean or "
        "another statistic of `metrics --stat`; NAME@OTHER for its value where OTHER is best. The "
        "first one ranks. Default: val_accuracy, or what there is.",
        "METRIC",
        multiple=True,
        shell_complete=options.complete("metric_names"),
    ),
    direction: Literal["min", "max"] | None = option(
        "--direction",
        "Whether a low (min) or a high value (max) of the first metric is better. Default: by its "
        "name, such as low for losses, errors and times, high for accuracies and rates.",
        click.Choice(["min", "max"]),
    ),
    best: int | None = option("--best", "Only the best N rows.", value_types.COUNT),
    sort: str | None = option(
        "--sort",
        "Sort by another metric (the best first), a parameter or `point`. Default: the first "
        "metric.",
        "COLUMN",
    ),
    reverse: bool = option("--reverse", "Reverse the order."),
    over: tuple[str, ...] = option(
        "--over",
        "Average over the values of this parameter, as over repeats and seeds.",
        "PARAMETER",
        multiple=True,
    ),
    each: bool = option("--each", "One row for each run: no means over repeats and seeds."),
    unfinished: bool = option(
        "--unfinished", "Count what runs reported that are not COMPLETED, such as running ones."
    ),
    plot: Path | None = option(
        "--plot",
        "Plot the metrics over each parameter into FILE.svg, .png or .pdf (needs matplotlib).",
        value_types.OUTPUT_FILE,
    ),
    refresh: bool | None = options.refresh,
    form: str | None = options.optional_form_of(
        FORMATS, "the suffix of --output; table on a terminal, otherwise tsv; parquet needs pyarrow"
    ),
    out: Path | None = option(
        "-o --output",
        "Write to FILE.csv, .tsv, .json, .jsonl, .md or .parquet.",
        value_types.OUTPUT_FILE,
    ),
) -> None:
    """Show which point of a sweep is best.

    One row for each point, with the parameters that the sweep varies, the best row first. Repeats
    and seeds are one row: their mean with its 95 % confidence interval (Student's t). Only
    COMPLETED points are ranked; the others follow, with what they reported so far. A point that
    was continued by further jobs has the metrics of all of them. New log lines are read first.
    """
    options.refuse(
        {
            "--each shows single runs: remove --over": each and over,
            "--plot writes a picture: remove --format and --output": plot and (out or form),
        }
    )
    form = options.format_of_file(form, out, FORMATS)
    context = session.open_context(ctx)
    sweep = queries.find(context, reference)
    on_demand.refresh(context, refresh)
    material = reading.read(context, sweep)
    wanted = reading.Wanted(
        metrics=metrics, direction=direction, over=over, each=each, unfinished=unfinished
    )
    everything = reading.build(context, material, wanted)
    chosen, shown = everything.choices, reading.best(everything, best)
    if sort is not None or reverse:
        is_ranked = bool(chosen and chosen[0].direction)
        try:
            by = sort or (chosen[0].label if is_ranked else "point")
            shown = results.ordered(shown, by, is_reversed=reverse)
        except ValueError as exc:
            raise click.UsageError(f"--sort: {exc}") from exc
    if plot is not None:
        _plot(everything, plot)
    else:
        result_tables.print_results(shown, form, out)
        if out is not None:
            output.note(f"Wrote {output.count(len(shown.rows), 'row')} to {out}")
    if form in ("table", "tsv", "csv"):
        for text in result_notes.legend(shown):
            output.note(text)
    for text in result_notes.warnings(everything):
        output.note(text)
    submitted = [point.job for point in material.points if point.job is not None]
    for text in comparing.notes(context, submitted):
        output.note(text)
    if not material.names:
        output.note(
            "No metrics yet: no line of the logs matches a pattern (spec key metrics.patterns; "
            f"`orchestrator logs --sweep @{sweep.row}` prints the logs)"
        )


def _plot(shown: results.Results, path: Path) -> None:
    from orchestrator.reports import metric_figures

    plots.check(path)
    figures = metric_figures.of_sweep(shown)
    if not figures:
        raise errors.NotFoundError("no completed point has a value that could be drawn")
    plots.save(path, figures, "choose fewer with --metric")
