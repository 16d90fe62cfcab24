"""orchestrator sweep resume."""

from __future__ import annotations

import sys

import click

from orchestrator.cli import output, session, sweep_sending
from orchestrator.controller.sweeps import queries


@click.command(short_help="Submit the points that are not submitted yet.")
@click.argument("sweep", metavar="SWEEP")
@output.format_option
@click.pass_context
def command(ctx: click.Context, sweep: str, format_: str | None, as_json: bool) -> None:
    """Submit the points that are not submitted yet: after a kill, a refusal, a cancel.

    Each point once: what Slurm has, or may have, or what waits for room is left alone.

    \b
    Example:
      orchestrator sweep resume digits-scaling
    """
    from orchestrator.controller.sweeps import resume

    context = session.open_context(ctx)
    found = queries.find(context, sweep)
    sent = resume.resume(context, found, argv=sys.argv, report=sweep_sending.tell)
    sweep_sending.told(context, sent, format_, as_json)
