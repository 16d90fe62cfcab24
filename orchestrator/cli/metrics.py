"""orchestrator metrics."""

from __future__ import annotations

import click

from orchestrator import errors
from orchestrator.cli import completing, output, session, views
from orchestrator.controller import ingest, unit_of_work


@click.command(short_help="Print the numbers that a job's log told.")
@click.argument(
    "references",
    nargs=-1,
    required=True,
    metavar="JOB...",
    shell_complete=completing.job_references,
)
@click.option("--name", "names", multiple=True, help="Only this metric: throughput, loss, ...")
@click.option(
    "--attempt", type=click.IntRange(min=0, max=10**9), help="Only of this attempt; default: all."
)
@click.option(
    "--source",
    type=click.Choice(["auto", "log", "jsonl"]),
    default="auto",
    show_default=True,
    help="auto: metrics.jsonl where it has the name, else the log.",
)
@click.option("--last", type=click.IntRange(min=1, max=10**9), help="Only the last N of each name.")
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    names: tuple[str, ...],
    attempt: int | None,
    source: str,
    last: int | None,
    format_: str | None,
    as_json: bool,
) -> None:
    """Print the numbers that a job's log and its metrics.jsonl told, oldest first.

    What the log got since the last look is read first; nothing is read twice.

    \b
    Examples:
      orchestrator metrics 123 --name throughput
      orchestrator metrics digits-ddp --last 1 --json
    """
    context = session.open_context(ctx)
    found = [job for reference in references for job in session.jobs_of(context, reference)]
    try:
        ingest.ingest(context, found)
    except errors.DatabaseError as exc:
        context.say(f"What the logs got since the last look is left out: {exc}")
    wanted = unit_of_work.MetricQuery(
        rows=tuple(job.row for job in found),
        names=names,
        attempt=attempt,
        source=None if source == "auto" else source,
        prefer_jsonl=source == "auto",
        last=last,
    )
    with context.store.reading() as work:
        stored = work.metrics(wanted)
    rows = [views.metric_row(metric) for metric in stored]
    output.items("metrics", rows, views.METRIC_COLUMNS, output.chosen(format_, as_json))
    if not rows and (names or attempt is not None or source != "auto"):
        everything = unit_of_work.MetricQuery(rows=wanted.rows, last=1)
        with context.store.reading() as work:
            others = sorted({stored.metric.name for stored in work.metrics(everything)})
        told = f"there are {', '.join(others)}" if others else "there are no others either"
        context.say(f"no such metrics; {told}")
    elif not rows:
        context.say(
            "no metrics: the log has no line that a pattern knows "
            "(spec key metrics.patterns; `orchestrator logs` shows the log)"
        )
