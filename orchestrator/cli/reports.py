"""orchestrator sweep report, and what it shares with `orchestrator baseline`."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from orchestrator import errors, files, reports
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column
from orchestrator.controller.refresh import on_demand
from orchestrator.controller.reports import baselines, studies
from orchestrator.controller.session import selection
from orchestrator.reports import comparison, documents, drawing, tables
from orchestrator.toml import values

_COLUMN_NAMES = ", ".join(tables.NAMES)
COMPARISON_COLUMNS = (
    Column("curve", "text"),
    Column("size"),
    Column("metric"),
    Column("change"),
    Column("interval", drop=3),
    Column("verdict"),
    Column("runs", drop=2),
    Column("baseline_runs", drop=1),
)
_CSV_LIMIT_BYTES = 64 * 1024 * 1024


def _parse_threshold(text: str) -> tuple[str, float]:
    """Return the metric and share of `METRIC=SHARE`."""
    name, _, share = text.partition("=")
    try:
        number = float(share.removesuffix("%")) / (100.0 if share.endswith("%") else 1.0)
    except ValueError:
        number = -1.0
    if name not in comparison.METRICS or not 0.0 <= number < 1.0:
        raise click.BadParameter(
            f"{text!r}: write METRIC=SHARE, such as throughput=0.05 or accuracy=1%; metrics are "
            f"{', '.join(comparison.METRICS)}"
        )
    return name, number


def _parse_time_limit(text: str) -> int:
    """Return the seconds of a time limit in Slurm's format."""
    with contextlib.suppress(ValueError):
        if (seconds := values.seconds(text)) is not None:
            return seconds
    raise click.BadParameter(f"{text!r} is not a time limit: write 90 (minutes) or 4:00:00")


def _parse_columns(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    # The heading of the column `size`.
    names = ["size" if word in ("gpus", "ranks") else word for word in words]
    for name in names:
        if name not in tables.NAMES:
            raise click.BadParameter(f"there is no column {name!r}; columns are {_COLUMN_NAMES}")
    return names


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Where measurements come from: jobs, a sweep, or a CSV file."""

    references: tuple[str, ...] = options.references
    sweep: str | None = option("--sweep", "Measure the jobs of this sweep.", "SWEEP")
    file: Path | None = option(
        "--from",
        "Read measurements from CSV: columns gpus or nodes, throughput, and any others, with "
        "one row per run. `-` is stdin.",
        click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
        metavar="FILE.csv",
    )
    refresh: bool | None = options.refresh


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ReportSource(Source):
    """A source whose argument is a sweep."""

    references: tuple[str, ...] = option(
        "--job",
        "Report on jobs instead of a sweep.",
        "JOB",
        multiple=True,
        shell_complete=options.complete("job_references"),
    )
    sweep: str | None = argument(required=False, metavar="[SWEEP]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    metrics: tuple[str, ...] = option(
        "--metric",
        f"Compare only this: {', '.join(comparison.METRICS)}. Default: "
        f"{' and '.join(comparison.DEFAULT_METRICS)}.",
        click.Choice([*comparison.METRICS]),
        metavar="METRIC",
        multiple=True,
    )
    thresholds: tuple[tuple[str, float], ...] = option(
        "--threshold",
        "Ignore smaller differences: throughput=0.05, accuracy=1%.",
        _parse_threshold,
        metavar="METRIC=SHARE",
        multiple=True,
    )


def load_study(ctx: click.Context, source: Source) -> reports.MeasurementSet:
    """Return the measurements of a source. UsageError unless exactly one is named."""
    if sum((bool(source.references), source.sweep is not None, source.file is not None)) != 1:
        raise click.UsageError("specify a sweep, jobs, or a file with --from")
    if source.file is not None:
        return read_csv(source.file)
    context = session.open_context(ctx)
    on_demand.refresh(context, source.refresh)
    if source.sweep is not None:
        return studies.of_sweep(context, source.sweep)
    return studies.of_jobs(context, selection.jobs_and_sweeps(context, source.references, ()))


def read_csv(file: Path) -> reports.MeasurementSet:
    """Return the measurements of a CSV file; `-` is stdin."""
    is_stdin = str(file) == "-"
    name = "stdin" if is_stdin else str(file)
    try:
        if is_stdin:
            text = sys.stdin.read(_CSV_LIMIT_BYTES + 1)
        else:
            # Spreadsheets write a byte order mark.
            content = files.read_bytes(file, limit_bytes=_CSV_LIMIT_BYTES, is_given=True)
            text = content.decode("utf-8-sig")
    except (UnicodeDecodeError, OSError) as exc:
        raise errors.OrchestratorError(f"{name} cannot be read as UTF-8 text: {exc}") from exc
    if len(text) > _CSV_LIMIT_BYTES:
        raise errors.OrchestratorError(f"stdin is larger than {_CSV_LIMIT_BYTES} bytes")
    title = "stdin" if is_stdin else file.stem
    return dataclasses.replace(reports.read_csv(text, name), title=title, source=name)


def print_comparison(
    compared: comparison.Comparison, name: str, study: reports.MeasurementSet, form: str
) -> None:
    """Print a comparison. OrchestratorError if a result is worse than the baseline.

    Or if jobs were left out and a size of the baseline has no runs, such as if all jobs failed.
    """
    rows = comparison.rows(compared)
    columns: Sequence[Column | str] = COMPARISON_COLUMNS if form == "table" else comparison.VALUES
    if not any(row["curve"] for row in rows):
        # The first column.
        columns = columns[1:]
    output.print_rows("comparison", rows, columns, form)
    for note in compared.notes:
        click.echo(f"  {note}" if form == "table" else note, err=form != "table")
    problems = []
    if worse := comparison.worse(compared, study.unit):
        problems.append(f"worse than {name}: {'; '.join(worse)}")
    if study.left_out and compared.missing:
        sizes = "; ".join(compared.missing)
        problems.append(f"jobs were left out, and these sizes of {name} have no runs: {sizes}")
    if problems:
        raise errors.OrchestratorError("\n".join(problems))
    output.note(f"These runs show nothing worse than {name}.")


@commands.command(
    "report",
    "orchestrator sweep report digits-scaling",
    "orchestrator sweep report digits-scaling --to report/ --epochs 100 --within 4:00:00",
    "orchestrator sweep report digits-scaling --against last-week",
    "orchestrator sweep report --from figures.csv --columns configuration,throughput,total_time",
    table=[Column(each.name, drop=each.drop) for each in tables.COLUMNS if not each.is_extra],
    changes="nothing",
    prints=("report",),
)
def report(
    ctx: click.Context,
    source: _ReportSource = commands.record(_ReportSource),
    scaling: str | None = option(
        "--scaling",
        "Which batch size is constant: the global one (strong), or that of each device (weak). "
        "Default: detected.",
        click.Choice(["strong", "weak"]),
    ),
    apart: tuple[str, ...] = option(
        "--apart",
        "Separate curves for the values of an attribute that does not affect speed: base_lr, "
        "epochs.",
        "ATTRIBUTE",
        multiple=True,
    ),
    efficiency: float = option(
        "--efficiency",
        "Estimate the largest number of GPUs with this parallel efficiency.",
        value_types.FloatRange(0.0, 1.0, min_open=True),
        default=0.8,
    ),
    epochs: int | None = option(
        "--epochs", "With --within: find the cheapest way to train N epochs.", value_types.COUNT
    ),
    within: int | None = option(
        "--within", "Time for --epochs: 90 (minutes) or 4:00:00.", _parse_time_limit, metavar="TIME"
    ),
    samples_per_epoch: int | None = option(
        "--samples-per-epoch",
        "Used to compute epoch times that were not measured.",
        click.IntRange(min=1, max=10**15),
    ),
    title: str | None = option("--title", "Title. Default: the name of the sweep or file.", "TEXT"),
    against: str | None = option(
        "--against", "Also compare with this baseline; exit with 1 if a result is worse.", "NAME"
    ),
    chosen: Comparison = commands.record(Comparison),
    columns: list[str] | None = option(
        "--columns",
        f"Print only these columns: {_COLUMN_NAMES}.",
        _parse_columns,
        metavar="NAME,...",
    ),
    folder: Path | None = option(
        "--to",
        "Write the report to DIR as Markdown, CSV, JSON, LaTeX and HTML, and its plots as SVG, "
        "PNG, PDF and CSV.",
        value_types.OUTPUT_FOLDER,
        metavar="DIR",
    ),
    no_plots: bool = option("--no-plots", "With --to: write no plots."),
    form: str | None = options.optional_form_of((*output.FORMATS, "markdown", "latex")),
) -> None:
    """Report how throughput scales with the number of GPUs.

    Shows speedup, parallel efficiency and fitted scaling models, with 95 % confidence intervals.
    Jobs that differ in more than their size are separate curves.
    """
    if against is not None and form not in (None, "table"):
        raise click.UsageError(
            "--against requires --format table. For another format use `orchestrator baseline "
            "compare --sweep SWEEP --against NAME --format FORMAT`"
        )
    if (epochs is None) != (within is None):
        raise click.UsageError("--epochs requires --within, and --within requires --epochs")
    targets = reports.Targets(efficiency=efficiency, epochs=epochs, within_seconds=within)
    study = load_study(ctx, source)
    built = reports.build_report(
        title or study.title,
        study.measurements,
        unit=study.unit,
        scaling_kind=scaling or study.scaling,
        samples_per_epoch=samples_per_epoch,
        apart=apart,
        left_out=study.left_out,
    )
    if folder is not None:
        draw = None if no_plots else drawing.draw
        contents = documents.contents(built, targets, columns or [], draw)
        _write(folder, contents)
        output.note(f"Wrote to {folder}: {', '.join(contents)}")
    if against is None:
        _print_report(built, targets, columns or [], form or output.default_format())
        return
    baseline = baselines.find(session.open_context(ctx), against)
    compared = baselines.compare(study, baseline, dict(chosen.thresholds), chosen.metrics)
    _print_report(built, targets, columns or [], "table")
    click.echo(f"\nCompared with {against}")
    print_comparison(compared, against, study, "table")


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
    except OSError as exc:
        raise errors.OrchestratorError(
            f"{exc.filename or folder} cannot be written: {exc.strerror}; name another folder"
        ) from exc


def _report_columns(report: reports.Report, names: Sequence[str]) -> list[Column]:
    """Return the columns of a table; those that were asked for are never left out."""
    (first, *_) = tables.rows(report)
    return [
        Column(
            column.heading(first),
            "text" if column.is_text else "whole",
            drop=None if names else column.drop,
        )
        for column in tables.shown(report, names)
    ]


def _print_report(
    report: reports.Report, targets: reports.Targets, names: list[str], form: str
) -> None:
    if form in ("markdown", "latex"):
        suffix = "md" if form == "markdown" else "tex"
        click.echo(documents.render(suffix, report, targets, names), nl=False)
        return
    if output.is_json(form):
        output.print_rows("report", documents.items(report, targets, names), (), form)
        return
    if form == "table":
        rows = tables.texts(report, names)
        output.print_rows("report", rows, _report_columns(report, names), form)
    else:
        values = tables.values(report, names)
        output.print_rows("report", values, list(values[0]), form)
    for title, sentences in documents.sentences(report, targets):
        if form == "table":
            click.echo("\n".join([f"\n{title}", *(f"  {sentence}" for sentence in sentences)]))
        else:
            for sentence in sentences:
                output.note(f"{title}: {sentence}")
