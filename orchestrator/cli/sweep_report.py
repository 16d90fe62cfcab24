"""orchestrator sweep report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from orchestrator import errors, reports
from orchestrator.cli import figures, output, session
from orchestrator.controller.reports import baselines
from orchestrator.reports import documents, drawing, tables
from orchestrator.toml import values

#: What people read as a whole; the other formats are rows.
TEXTS = ("markdown", "latex")


def _questions(command: Callable[..., object]) -> Callable[..., object]:
    for option in (
        click.option("--title", help="Stands above it; default: the sweep's or the file's name."),
        click.option(
            "--samples-per-epoch",
            type=click.IntRange(min=1, max=10**15),
            help="Gives the time of an epoch where it was not measured.",
        ),
        click.option("--within", metavar="TIME", help="As Slurm takes it: 90, 4:00:00, 1-12."),
        click.option(
            "--epochs",
            type=click.IntRange(min=1, max=10**9),
            help="With --within: the cheapest way to train so many.",
        ),
        click.option(
            "--efficiency",
            type=click.FloatRange(0.0, 1.0, min_open=True),
            default=0.8,
            show_default=True,
            help="The most GPUs that keep it are told, by the fit.",
        ),
        click.option(
            "--apart",
            multiple=True,
            metavar="ATTRIBUTE",
            help="A curve for each of its values, although it changes no speed: base_lr, epochs.",
        ),
        click.option(
            "--scaling",
            type=click.Choice(["strong", "weak"]),
            help="Which batch the study holds: the global one, or that of each device. Default: "
            "what the sweep or the batches say.",
        ),
    ):
        command = option(command)
    return command


def _forms(command: Callable[..., object]) -> Callable[..., object]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
        click.option(
            "--format",
            "format_",
            type=click.Choice([*output.FORMATS, *TEXTS]),
            help="Default: table on a terminal, tsv in a pipe.",
        ),
        click.option("--no-plots", is_flag=True, help="With --to: leave the plots out."),
        click.option(
            "--to",
            "folder",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Write it there as Markdown, CSV, JSON, LaTeX and one HTML page, with its plots "
            "as SVG, PNG and PDF, each with its CSV.",
        ),
        click.option(
            "--columns",
            metavar="NAME,...",
            help=f"Only these, in this order: {', '.join(tables.NAMES)}.",
        ),
    ):
        command = option(command)
    return command


@click.command("report", short_help="Show how a study scaled: table, fits and plots.")
@click.argument("sweep", required=False, metavar="[SWEEP]")
@click.option(
    "--job", "references", multiple=True, metavar="JOB", help="Jobs that are no sweep: 123, NAME."
)
@figures.file_option
@session.refresh_options
@_questions
@click.option(
    "--against",
    metavar="NAME",
    help="Below the table a comparison with this baseline; 1 where something is worse.",
)
@figures.metric_options
@_forms
@click.pass_context
def command(
    ctx: click.Context,
    sweep: str | None,
    references: tuple[str, ...],
    file: Path | None,
    refresh_: bool | None,
    scaling: str | None,
    apart: tuple[str, ...],
    efficiency: float,
    epochs: int | None,
    within: str | None,
    samples_per_epoch: int | None,
    title: str | None,
    against: str | None,
    metrics: tuple[str, ...],
    thresholds: tuple[str, ...],
    columns: str | None,
    folder: Path | None,
    no_plots: bool,
    format_: str | None,
    as_json: bool,
) -> None:
    """Show how throughput grew with the number of GPUs: speedup, efficiency, fits, and what spoils
    them.

    SWEEP is its name, of several the newest, or its number `@3`. Jobs that differ in more than
    their size are named, and make a curve each.

    \b
    Examples:
      orchestrator sweep report digits-scaling
      orchestrator sweep report digits-scaling --to report/ --epochs 100 --within 4:00:00
      orchestrator sweep report digits-scaling --against last-week
      orchestrator sweep report --from figures.csv --columns configuration,throughput,total_time
    """
    form = _form(format_, as_json, against)
    wished, names = _wishes(efficiency, epochs, within), _column_names(columns)
    study = figures.study(ctx, references, sweep, file, refresh_)
    report = reports.build_report(
        title or study.title,
        study.measurements,
        unit=study.unit,
        scaling_kind=scaling or study.scaling,
        samples_per_epoch=samples_per_epoch,
        apart=apart,
        left_out=study.left_out,
    )
    if folder is not None:
        drawer = None if no_plots else drawing.Drawer()
        made = documents.contents(report, wished, names, drawer)
        _write(folder, made)
        output.say(f"Written to {folder}: {', '.join(made)}")
    if against is None:
        _show(report, wished, names, form)
        return
    kept = baselines.find(session.open_context(ctx), against)
    compared = figures.compared(study, kept, metrics, thresholds)
    _show(report, wished, names, form)
    click.echo(f"\nAgainst {against}")
    figures.show_comparison(compared, against, study, form)


def _write(folder: Path, made: Mapping[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            (folder / name).write_bytes(content)
    except OSError as exc:
        raise errors.OrchestratorError(
            f"{exc.filename or folder} cannot be written: {exc.strerror}; name another folder"
        ) from exc


def _form(format_: str | None, as_json: bool, against: str | None) -> str:
    if against is not None:
        if as_json or format_ not in (None, "table"):
            raise click.UsageError(
                "--against is for people, and beside --format table alone: "
                "`orchestrator baseline compare --sweep SWEEP --against NAME --format FORMAT` "
                "prints the comparison for programs"
            )
        return "table"
    return "json" if as_json else format_ or ("table" if sys.stdout.isatty() else "tsv")


def _wishes(efficiency: float, epochs: int | None, within: str | None) -> reports.Targets:
    if (epochs is None) != (within is None):
        raise click.UsageError("--epochs and --within belong together: so many, in what time")
    seconds = None
    if within is not None:
        try:
            seconds = values.seconds(within)
        except ValueError as exc:
            raise click.UsageError(f"--within: {exc}; write 90 (minutes) or 4:00:00") from exc
        if seconds is None:
            raise click.UsageError("--within: a time without end asks for nothing")
    return reports.Targets(efficiency=efficiency, epochs=epochs, within_seconds=seconds)


def _column_names(text: str | None) -> list[str]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    # The table itself calls its sizes so.
    names = ["size" if word in ("gpus", "ranks") else word for word in words]
    for name in names:
        if name not in tables.NAMES:
            raise click.UsageError(
                f"--columns: there is no {name!r}; there are {', '.join(tables.NAMES)}"
            )
    return names


def _show(report: reports.Report, wished: reports.Targets, names: list[str], form: str) -> None:
    columns = tables.chosen(report, names)
    if form == "markdown":
        click.echo(documents.markdown(report, wished, columns), nl=False)
    elif form == "latex":
        click.echo(documents.latex(report, wished, columns), nl=False)
    elif output.is_json(form):
        output.items("report", documents.items(report, wished, names), (), form)
    elif form == "table":
        rows = tables.texts(report, columns)
        output.items("report", rows, list(rows[0]), form)
        for title, found in documents.sentences(report, wished):
            click.echo(f"\n{title}")
            for sentence in found:
                click.echo(f"  {sentence}")
    else:
        numbers = tables.values(report, tables.everything(report, names))
        output.items("report", numbers, list(numbers[0]), form)
        for title, found in documents.sentences(report, wished):
            for sentence in found:
                output.say(f"{title}: {sentence}")
