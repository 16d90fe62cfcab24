"""orchestrator sweep report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from orchestrator import errors, reports, values
from orchestrator.cli import output
from orchestrator.reports import documents, drawing, files, tables

#: What people read, in whole; the others are rows for programs.
TEXTS = ("markdown", "latex")


def options(command: Callable[..., object]) -> Callable[..., object]:
    """Add what a report is asked for and how it is shown."""
    for option in (
        click.option(
            "--scaling",
            type=click.Choice(["strong", "weak"]),
            help="Which batch the study holds: the global one, or that of each device. "
            "Default: what the batches say.",
        ),
        click.option(
            "--efficiency",
            type=click.FloatRange(0.0, 1.0, min_open=True),
            default=0.8,
            show_default=True,
            help="The most GPUs that keep it are told, by the fit.",
        ),
        click.option(
            "--epochs",
            type=click.IntRange(min=1, max=10**9),
            help="With --within: the cheapest way to train so many.",
        ),
        click.option("--within", metavar="TIME", help="As Slurm takes it: 90, 4:00:00, 1-12."),
        click.option(
            "--samples-per-epoch",
            type=click.IntRange(min=1, max=10**15),
            help="Gives the time of an epoch where it was not measured.",
        ),
        click.option("--title", help="Stands above it; default: the sweep's or the file's name."),
        click.option(
            "--columns",
            metavar="NAME,...",
            help=f"Only these, in this order: {', '.join(tables.NAMES)}.",
        ),
        click.option(
            "--to",
            "folder",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Write it there as Markdown, CSV, JSON, LaTeX and one HTML page, with its "
            "plots as SVG, PNG and PDF, each with its CSV.",
        ),
        click.option("--no-plots", is_flag=True, help="With --to: leave the plots out."),
        click.option(
            "--format",
            "format_",
            type=click.Choice([*output.FORMATS, *TEXTS]),
            help="Default: table on a terminal, tsv in a pipe.",
        ),
        click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
    )[::-1]:
        command = option(command)
    return command


@click.command("report", short_help="Show how a study scaled: table, fits and plots.")
@click.option(
    "--from",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE.csv",
    help="Figures from elsewhere: columns gpus or nodes, throughput, and any others; a row a "
    "repeat. `-` is stdin.",
)
@options
def command(
    file: Path,
    scaling: str | None,
    efficiency: float,
    epochs: int | None,
    within: str | None,
    samples_per_epoch: int | None,
    title: str | None,
    columns: str | None,
    folder: Path | None,
    no_plots: bool,
    format_: str | None,
    as_json: bool,
) -> None:
    """Show how throughput grew with the number of GPUs: speedup, efficiency, fits, and what spoils
    them.

    Jobs that differ in more than their size are named, and make a curve each.

    \b
    Examples:
      orchestrator sweep report --from figures.csv
      orchestrator sweep report --from figures.csv --epochs 100 --within 4:00:00 --to report/
      orchestrator sweep report --from figures.csv --columns configuration,throughput,total_time
    """
    figures = read_figures(file)
    report = reports.report(
        title or file.stem,
        figures.measurements,
        unit=figures.unit,
        scaling_kind=scaling,
        samples_per_epoch=samples_per_epoch,
    )
    show(
        report,
        wishes(efficiency, epochs, within),
        column_names(columns),
        folder,
        with_plots=not no_plots,
        format_=format_,
        as_json=as_json,
    )


def read_figures(file: Path) -> reports.Figures:
    """Return what a CSV file holds; FiguresError with every problem there is."""
    if str(file) == "-":
        return reports.read(sys.stdin.read(), "stdin")
    try:
        return reports.read(file.read_text(encoding="utf-8-sig"), str(file))
    except (UnicodeDecodeError, OSError) as exc:
        raise errors.OrchestratorError(f"{file} cannot be read as UTF-8 text: {exc}") from exc


def wishes(efficiency: float, epochs: int | None, within: str | None) -> reports.Wishes:
    """Return what is asked besides; UsageError for half a question."""
    if (epochs is None) != (within is None):
        raise click.UsageError(
            "--epochs and --within belong together: so many epochs, in what time"
        )
    seconds = None
    if within is not None:
        try:
            seconds = values.seconds(within)
        except ValueError as exc:
            raise click.UsageError(f"--within: {exc}; write 90 (minutes) or 4:00:00") from exc
        if seconds is None:
            raise click.UsageError("--within: a time without end asks for nothing")
    return reports.Wishes(efficiency=efficiency, epochs=epochs, within_seconds=seconds)


def column_names(text: str | None) -> list[str]:
    """Return the columns named; UsageError for one that is not there."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in names:
        if name not in tables.NAMES:
            raise click.UsageError(
                f"--columns: there is no {name!r}; there are {', '.join(tables.NAMES)}"
            )
    return names


def show(
    report: reports.Report,
    wished: reports.Wishes,
    names: list[str],
    folder: Path | None,
    *,
    with_plots: bool,
    format_: str | None,
    as_json: bool,
) -> None:
    """Print the report, and write its files where a folder is named."""
    columns = tables.chosen(report, names)
    if folder is not None:
        drawer = drawing.Drawer() if with_plots else None
        written = files.write(report, wished, columns, folder, drawer)
        output.say(f"Written to {folder}: {', '.join(written)}")
    form = "json" if as_json else format_ or ("table" if sys.stdout.isatty() else "tsv")
    if form == "markdown":
        click.echo(documents.markdown(report, wished, columns), nl=False)
    elif form == "latex":
        click.echo(documents.latex(report, wished, columns), nl=False)
    elif form in ("json", "jsonl"):
        output.items("report", documents.items(report, wished, columns), (), form)
    elif form == "table":
        rows = tables.texts(report, columns)
        output.items("report", rows, list(rows[0]), form)
        for title, found in documents.sentences(report, wished):
            click.echo(f"\n{title}")
            for sentence in found:
                click.echo(f"  {sentence}")
    else:
        numbers = tables.values(report, columns)
        output.items("report", numbers, list(numbers[0]), form)
        for title, found in documents.sentences(report, wished):
            for sentence in found:
                output.say(f"{title}: {sentence}")
