"""The edge of reports: from a sweep, jobs or a file on the command line to a study."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from orchestrator import errors, files, reports
from orchestrator.cli import completing, output, session
from orchestrator.controller.refresh import freshness
from orchestrator.controller.reports import studies
from orchestrator.reports import comparison

#: A line is some 200 bytes, and a study has thousands of them at the most.
_CSV_LIMIT_BYTES = 64 * 1024 * 1024


def file_option(command: Callable[..., object]) -> Callable[..., object]:
    """Add --from."""
    return click.option(
        "--from",
        "file",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
        metavar="FILE.csv",
        help="Figures from elsewhere: columns gpus or nodes, throughput, and any others; a row a "
        "repeat. `-` is stdin.",
    )(command)


def sources(command: Callable[..., object]) -> Callable[..., object]:
    """Add [JOB...], --sweep, --from and --refresh, for study()."""
    for option in (
        session.refresh_options,
        file_option,
        click.option("--sweep", metavar="SWEEP", help="The jobs of this sweep: NAME or @3."),
        click.argument(
            "references", nargs=-1, metavar="[JOB...]", shell_complete=completing.job_references
        ),
    ):
        command = option(command)
    return command


def metric_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add --metric and --threshold, for compared()."""
    names = ", ".join(comparison.METRICS)
    for option in (
        click.option(
            "--threshold",
            "thresholds",
            multiple=True,
            metavar="METRIC=SHARE",
            help="A difference that is no larger is none: throughput=0.05, accuracy=1%.",
        ),
        click.option(
            "--metric",
            "metrics",
            multiple=True,
            type=click.Choice([*comparison.METRICS]),
            metavar="METRIC",
            help=f"Compare only this: {names}. "
            f"Default: {' and '.join(comparison.DEFAULT_METRICS)}.",
        ),
    ):
        command = option(command)
    return command


def study(
    ctx: click.Context,
    references: Sequence[str],
    sweep: str | None,
    file: Path | None,
    refresh_: bool | None,
) -> studies.Study:
    """Return the study that is meant, with the jobs as Slurm sees them now.

    UsageError where none or several are named.
    """
    if sum((bool(references), sweep is not None, file is not None)) != 1:
        raise click.UsageError("name a sweep, or jobs, or a file by --from: one of the three")
    if file is not None:
        return of_file(file)
    context = session.open_context(ctx)
    if refresh_ or (refresh_ is not False and not freshness.nothing_is_due(context)):
        # What asks Slurm takes as long to load as all the rest.
        from orchestrator.controller.resubmission import resend

        resend.refresh_or_warn(context, floor_seconds=0 if refresh_ else None)
    if sweep is not None:
        return studies.of_sweep(context, sweep)
    found = [job for reference in references for job in session.jobs_of(context, reference)]
    return studies.of_jobs(context, [*{job.row: job for job in found}.values()])


def of_file(file: Path) -> studies.Study:
    """Return what a CSV file holds; MeasurementFileError with every problem there is."""
    try:
        if str(file) == "-":
            text = sys.stdin.read(_CSV_LIMIT_BYTES + 1)
        else:
            # Spreadsheets begin their CSV with a byte order mark.
            text = files.read_given(file, limit_bytes=_CSV_LIMIT_BYTES).decode("utf-8-sig")
    except (UnicodeDecodeError, OSError) as exc:
        raise errors.OrchestratorError(f"{file} cannot be read as UTF-8 text: {exc}") from exc
    if len(text) > _CSV_LIMIT_BYTES:
        raise errors.OrchestratorError(f"stdin is larger than {_CSV_LIMIT_BYTES} bytes")
    name = "stdin" if str(file) == "-" else str(file)
    read = reports.read_csv(text, name)
    return studies.Study(
        title="stdin" if str(file) == "-" else file.stem,
        source=name,
        unit=read.unit,
        measurements=read.measurements,
    )


def compared(
    study: studies.Study,
    against: reports.MeasurementSet,
    metrics: Sequence[str],
    thresholds: Sequence[str],
) -> comparison.Comparison:
    """Return the comparison; ConflictError where the sides count their sizes differently."""
    if study.unit != against.unit:
        raise errors.ConflictError(
            f"sizes are {study.unit} here and {against.unit} in the baseline: they do not compare"
        )
    found = comparison.compare(
        study.measurements,
        against.measurements,
        _thresholds(thresholds),
        metrics or comparison.DEFAULT_METRICS,
        unit=study.unit,
    )
    if not found.lines:
        raise errors.ConflictError("\n".join(["nothing compares with the baseline", *found.notes]))
    return found


def _thresholds(texts: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, share = text.partition("=")
        try:
            value = float(share.removesuffix("%")) / (100.0 if share.endswith("%") else 1.0)
        except ValueError:
            value = -1.0
        if name not in comparison.METRICS or not 0.0 <= value < 1.0:
            raise click.UsageError(
                f"--threshold {text}: write METRIC=SHARE, such as throughput=0.05 or accuracy=1%; "
                f"metrics are {', '.join(comparison.METRICS)}"
            )
        found[name] = value
    return found


class WorseError(errors.OrchestratorError):
    """Something is worse than the baseline."""


def show_comparison(
    found: comparison.Comparison, name: str, study: studies.Study, form: str
) -> None:
    """Print the comparison; its notes stand below a table, else on stderr.

    WorseError where something is worse than the baseline, or where jobs were left out and something
    of the baseline is not there: a size of which all jobs failed is no good news.
    """
    rows = comparison.rows(found)
    wanted = comparison.COLUMNS if form == "table" else comparison.VALUES
    columns = [
        column for column in wanted if column != "curve" or any(row["curve"] for row in rows)
    ]
    output.items("comparison", rows, columns, form)
    for note in found.notes:
        if form == "table":
            click.echo(f"  {note}")
        else:
            output.say(note)
    problems = []
    if worse := comparison.worse(found, study.unit):
        problems.append(f"worse than {name}: {'; '.join(worse)}")
    if study.left_out and found.missing:
        each = "; ".join(found.missing)
        problems.append(f"{name} has runs of {each}, and now there are none: jobs were left out")
    if problems:
        raise WorseError("\n".join(problems))
    output.say(f"Nothing is worse than {name}, as far as these runs tell.")
