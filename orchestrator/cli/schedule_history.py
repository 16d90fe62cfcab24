"""orchestrator schedule history."""

from __future__ import annotations

import click

from orchestrator.cli import output, schedule_views, session
from orchestrator.controller.schedules import management


@click.command(short_help="List what became of each planned time.")
@click.argument("name", metavar="NAME")
@output.limit_option
@output.format_option
@click.pass_context
def command(ctx: click.Context, name: str, limit: int, format_: str | None, as_json: bool) -> None:
    """List what became of each planned time, newest first: one line each, and never two.

    It fired, waits, was skipped for a reason, or failed: then nothing could be submitted.

    \b
    Example:
      orchestrator schedule history nightly --format csv
    """
    context = session.open_context(ctx)
    stored, firings = management.history(context, name, limit)
    chosen = output.chosen(format_, as_json)
    rows = schedule_views.firing_rows(firings, stored.tz, chosen)
    output.items("firings", rows, schedule_views.FIRING_COLUMNS, chosen)
