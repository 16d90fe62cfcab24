"""orchestrator metrics reparse."""

from __future__ import annotations

import click

from orchestrator.cli import completing, output, session

COLUMNS = ("job_id", "path", "before", "after", "kept")


@click.command("reparse", short_help="Read logs anew, with today's patterns.")
@click.argument(
    "references", nargs=-1, metavar="[JOB...]", shell_complete=completing.job_references
)
@click.option("--sweep", "sweeps", multiple=True, metavar="SWEEP", help="All jobs of it.")
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="NAME",
    help="With this pattern, in place of those of the spec.",
)
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    sweeps: tuple[str, ...],
    patterns: tuple[str, ...],
    format_: str | None,
    as_json: bool,
) -> None:
    """Read the logs of jobs anew, with today's patterns, in place of the numbers they gave before.

    A job has its old numbers or its new ones, whenever this is interrupted. Where a log is gone or
    was cut, its old numbers stay; so do those of metrics.jsonl, which no pattern made.

    \b
    Examples:
      orchestrator metrics reparse 123
      orchestrator metrics reparse --sweep digits-scaling --pattern olivia
    """
    from orchestrator.controller.metrics import reparse

    if not references and not sweeps:
        raise click.UsageError("name jobs, or --sweep")
    context = session.open_context(ctx)
    found = session.jobs_and_sweeps(context, references, sweeps)
    rows = [
        {
            "job_row": one.job.row,
            "job_id": one.job.job_id,
            "path": one.path,
            "before": one.before,
            "after": one.after,
            "kept": one.kept,
        }
        for one in reparse.reparse(context, found, patterns)
    ]
    output.items("reparsed", rows, COLUMNS, output.chosen(format_, as_json))
    if not rows:
        context.reporter.info(
            "no numbers: these jobs have no logs yet, or none that a pattern knows"
        )
