"""orchestrator sweep rerun."""

from __future__ import annotations

import sys

import click

from orchestrator.cli import output, session, sweep_sending
from orchestrator.controller.sweeps import queries


@click.command(short_help="Submit points again that failed or are missing.")
@click.argument("sweep", metavar="SWEEP")
@click.option("--failed", is_flag=True, help="Those that failed, by themselves or with their node.")
@click.option("--missing", is_flag=True, help="Those cancelled, lost, or never submitted.")
@click.option(
    "--point",
    "points",
    multiple=True,
    metavar="POINT",
    help="This one, by number or name, however it ended. May be repeated.",
)
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    sweep: str,
    failed: bool,
    missing: bool,
    points: tuple[str, ...],
    format_: str | None,
    as_json: bool,
) -> None:
    """Submit points of a sweep again, as new jobs: by default the failed and the missing ones.

    A point that waits or runs is left alone. Of a point's jobs the newest counts. An array that
    Slurm never got is sent as a whole.

    \b
    Examples:
      orchestrator sweep rerun digits-scaling
      orchestrator sweep rerun digits-scaling --point 3 --point gpus4-r2-9f86d081
    """
    from orchestrator.controller.sweeps import resume

    context = session.open_context(ctx)
    found = queries.find(context, sweep)
    both = not (failed or missing or points)
    sent = resume.rerun(
        context,
        found,
        failed=failed or both,
        missing=missing or both,
        named=points,
        argv=sys.argv,
        report=sweep_sending.tell,
    )
    sweep_sending.told(context, sent, format_, as_json)
