"""orchestrator sweep results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator import errors
from orchestrator.cli import commands, options, output, session, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import Column, plots, result_rows
from orchestrator.controller.reproduction import comparing
from orchestrator.controller.sweeps import queries
from orchestrator.controller.sweeps import results as reading
from orchestrator.metrics import choices, summaries
from orchestrator.patterns import vocabulary
from orchestrator.sweeps import parameters, result_notes, results

FORMATS = (*output.FORMATS, "markdown", "parquet")
#: Without --metric the first of these that the runs have.
_USUAL = ("val_accuracy", "val_loss", "accuracy", "loss", "throughput")
_DIRECTIONS = {None: 0, "min": -1, "max": 1}
#: Columns beside parameters and metrics.
_COLUMNS = ("rank", "point", "runs", "state", "job_id")


@commands.command(
    "results",
    "orchestrator sweep results digits-grid --metric val_accuracy --best 5",
    "orchestrator sweep results digits-grid --metric val_accuracy:best --metric loss@val_accuracy",
    "orchestrator sweep results digits-grid --metric val_loss --plot lr.svg",
    "orchestrator sweep results digits-grid --metric reward --direction max --output results.csv",
    table=[Column(name, drop=number) for number, name in enumerate(result_rows.LEFT_OUT, start=1)],
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
    direction: str | None = option(
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
    form = options.format_of_file(form, out, FORMATS)
    options.refuse(
        {
            "--each shows single runs: remove --over": each and over,
            "--plot writes a picture: remove --format and --output": plot and out,
        }
    )
    context = session.open_context(ctx)
    sweep = queries.find(context, reference)
    session.refresh(context, refresh)
    material = reading.read(context, sweep)
    chosen = _choose(metrics, material.names, direction)
    labels = [choice.label for choice in chosen]
    points = parameters.Points(material.points, material.document, (*_COLUMNS, *labels))
    everything = results.build(
        reading.measure(context, material, chosen),
        points,
        chosen,
        averaged=_averaged(points, over, each=each),
        with_unfinished=unfinished,
    )
    shown = everything
    if best is not None:
        if chosen and not chosen[0].direction:
            raise click.UsageError(
                f"--best: it is not known whether a high or a low {chosen[0].name} is better; "
                "state --direction max or min"
            )
        shown = results.best(shown, best)
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
        result_rows.print_results(shown, form, out)
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


def _choose(
    texts: Sequence[str], names: Sequence[str], direction: str | None
) -> list[choices.Choice]:
    """Return the chosen metrics. UsageError for an invalid one, NotFoundError for an unknown."""
    if not texts:
        known = [name for name in names if summaries.direction(name)]
        texts = [name for name in (*_USUAL, *known) if name in names][:1]
        if texts:
            others = [name for name in names if name not in (*texts, "epoch", "step")]
            output.note(f"--metric {texts[0]}; other metrics: {', '.join(others) or 'none'}")
    try:
        return choices.resolve(texts, names, _DIRECTIONS[direction], alias=vocabulary.normalized)
    except choices.UnknownMetricError as exc:
        raise errors.NotFoundError(f"--metric: {exc}") from exc
    except choices.ChoiceError as exc:
        raise click.UsageError(f"--metric: {exc}") from exc


def _averaged(points: parameters.Points, over: Sequence[str], *, each: bool) -> list[str]:
    """Return the keys over whose values rows are means. UsageError for an unknown one."""
    if each:
        return []
    keys = [parameter.key for parameter in points.parameters if parameter.is_seed]
    for name in over:
        matching = [p.key for p in points.parameters if name in (p.key, p.heading)]
        if not matching:
            headings = ", ".join(parameter.heading for parameter in points.parameters)
            raise click.UsageError(f"--over: there is no parameter {name!r}; use {headings}")
        keys += matching
    return keys


def _plot(shown: results.Results, path: Path) -> None:
    from orchestrator.reports import metric_figures

    plots.check(path)
    figures = metric_figures.of_sweep(shown)
    if not figures:
        raise errors.NotFoundError("no completed point has a value that could be drawn")
    plots.save(path, figures, "choose fewer with --metric")
