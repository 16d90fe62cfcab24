"""orchestrator schedule list."""

from __future__ import annotations

import click

from orchestrator.cli import output, schedule_views, session
from orchestrator.controller.schedules import management


@click.command(short_help="List the schedules, what is next and what was last.")
@click.option("--all", "everything", is_flag=True, help="Those too that were removed.")
@output.format_option
@click.pass_context
def command(ctx: click.Context, everything: bool, format_: str | None, as_json: bool) -> None:
    """List the schedules: when each is next, and the verdict on what it submitted last.

    \b
    Example:
      orchestrator schedule list
    """
    context = session.open_context(ctx)
    with context.store.reading() as work:
        if everything:
            found = work.schedules.all(states=("active", "paused", "removed"))
        else:
            found = work.schedules.all()
    chosen = output.chosen(format_, as_json)
    rows = [
        schedule_views.schedule_row(one, chosen) for one in management.summaries(context, found)
    ]
    output.items("schedules", rows, schedule_views.COLUMNS, chosen)
    if found:
        schedule_views.tell_who_acts(context, found, at_all=True)
