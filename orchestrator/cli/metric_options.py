"""What is asked of numbers on the command line -> a query. The words are those of `metrics`."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from orchestrator import jobs, metrics
from orchestrator.cli import completing, output, session, times
from orchestrator.controller.session import contexts

FORMATS = (*output.FORMATS, "parquet")
_COUNT = click.IntRange(min=1, max=10**9)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """The options, as click gives them."""

    references: tuple[str, ...]
    sweeps: tuple[str, ...]
    names: tuple[str, ...]
    steps: str | None
    epochs: str | None
    since: str | None
    until: str | None
    attempt: int | None
    rank: int | None
    source: str
    last: int | None
    every: int | None
    points: int | None
    stat: str | None
    compare: bool
    by: str | None
    plot: Path | None
    follow: bool
    format_: str | None
    as_json: bool
    out: Path | None

    @property
    def is_narrow(self) -> bool:
        """Whether something besides jobs was asked for, so that there may be other numbers."""
        given = (self.names, self.steps, self.epochs, self.since, self.until)
        return bool(
            any(given) or self.attempt is not None or self.rank is not None or self.source != "auto"
        )


class _Jobs(click.Argument):
    """Jobs, which stand in the usage beside the subcommands, and not before them."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []


def options(command: Callable[..., object]) -> Callable[..., object]:
    """Add [JOB...] and all options of `metrics`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.argument("references", nargs=-1, cls=_Jobs, shell_complete=completing.job_references),
    click.option("--sweep", "sweeps", multiple=True, metavar="SWEEP", help="All jobs of it."),
    click.option(
        "--name", "names", multiple=True, help="Only this metric: throughput, 'val_*', ..."
    ),
    click.option("--steps", metavar="A:B", help="Only of steps A to B; either may be left out."),
    click.option("--epochs", metavar="A:B", help="Only of epochs A to B."),
    click.option("--since", metavar="TIME", help="Only what tells its time, from then on."),
    click.option("--until", metavar="TIME", help="Only what tells its time, until then."),
    click.option(
        "--attempt",
        type=click.IntRange(min=0, max=10**9),
        help="Only of this attempt; default: all.",
    ),
    click.option("--rank", type=click.IntRange(min=0, max=10**9), help="Only of this rank."),
    click.option(
        "--source",
        type=click.Choice(["auto", "log", "jsonl"]),
        default="auto",
        show_default=True,
        help="auto: metrics.jsonl where it has the name, else the log.",
    ),
    click.option("--last", type=_COUNT, help="Only the last N of each name and rank."),
    click.option("--every", type=_COUNT, metavar="N", help="Only each Nth of each name."),
    click.option(
        "--points", type=_COUNT, metavar="N", help="N of each name, evenly spread over its range."
    ),
    click.option(
        "--stat",
        metavar="LIST",
        help="A row a name: count, nan, first, last, mean, std, min, median, max, best, p5, p95, "
        "any percentile, or all.",
    ),
    click.option("--compare", is_flag=True, help="Two or more jobs side by side."),
    click.option(
        "--by",
        type=click.Choice(["step", "epoch", "time"]),
        help="With --compare: a row a step or epoch. With --plot: what lies below.",
    ),
    click.option(
        "--plot",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Draw them into FILE.svg, .png or .pdf (extra `plot`).",
    ),
    click.option("-f", "--follow", is_flag=True, help="Go on as they come, until the jobs end."),
    click.option(
        "--format",
        "format_",
        type=click.Choice(FORMATS),
        help="Default: that of --output's ending; table on a terminal, tsv in a pipe. "
        "parquet needs the extra `parquet`.",
    ),
    click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
    click.option(
        "-o",
        "--output",
        "out",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Into this file, in place of stdout.",
    ),
)


def chosen_jobs(context: contexts.Context, asked: Asked) -> list[jobs.Job]:
    """Return the jobs that are named, each once, in the order of the words."""
    if not asked.references and not asked.sweeps:
        raise click.UsageError("name jobs, or --sweep")
    return session.jobs_and_sweeps(context, asked.references, asked.sweeps)


def query(context: contexts.Context, asked: Asked, rows: Sequence[int]) -> metrics.MetricQuery:
    """Return which metrics are meant; UsageError where that cannot be told."""
    if asked.every is not None and asked.points is not None:
        raise click.UsageError("--every and --points both thin out: say one")
    first_step, last_step = _range("--steps", asked.steps)
    first_epoch, last_epoch = _range("--epochs", asked.epochs)
    return metrics.MetricQuery(
        job_rows=tuple(rows),
        names=asked.names,
        attempt=asked.attempt,
        rank=asked.rank,
        first_step=first_step,
        last_step=last_step,
        first_epoch=first_epoch,
        last_epoch=last_epoch,
        since=_time("--since", asked.since, context.clock.now()),
        until=_time("--until", asked.until, context.clock.now()),
        source=None if asked.source == "auto" else asked.source,
        prefer_jsonl=asked.source == "auto",
        last=asked.last,
        every=asked.every,
        points=asked.points,
    )


def form(asked: Asked) -> str:
    """Return the format to print; UsageError where it cannot be meant."""
    if asked.as_json:
        found = "json"
    elif asked.format_ is not None:
        found = asked.format_
    elif asked.out is not None:
        found = asked.out.suffix.removeprefix(".")
        if found not in FORMATS:
            raise click.UsageError(
                f"--output {asked.out}: its ending tells no format; say --format, or end it in "
                f"{', '.join(f'.{name}' for name in FORMATS if name != 'table')}"
            )
    else:
        return output.chosen(None, False)
    if found == "parquet" and asked.out is None:
        raise click.UsageError("--format parquet is for files: add --output FILE.parquet")
    return found


def _range(option: str, text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    first, colon, last = text.partition(":")
    try:
        ends = [int(end) if end.strip() else None for end in (first, last if colon else first)]
    except ValueError:
        ends = []
    # SQLite's integers have 64 bits.
    if not text.strip(": ") or not ends or any(abs(end or 0) >= 2**63 for end in ends):
        raise click.UsageError(f"{option} {text}: write A:B, A:, :B or one number")
    begin, end = ends
    if begin is not None and end is not None and begin > end:
        raise click.UsageError(f"{option} {text}: it ends before it begins; write {end}:{begin}")
    return begin, end


def _time(option: str, text: str | None, now: datetime.datetime) -> datetime.datetime | None:
    if text is None:
        return None
    try:
        return times.since(text, now)
    except ValueError as exc:
        raise click.UsageError(
            f"{option} {text}: write 2026-11-20, 2026-11-20T10:05, 10:05, yesterday or 2hours"
        ) from exc
