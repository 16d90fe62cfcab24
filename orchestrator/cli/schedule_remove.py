"""orchestrator schedule remove."""

from __future__ import annotations

import click

from orchestrator.cli import session
from orchestrator.controller.schedules import management


@click.command(short_help="End a schedule; its history is kept.")
@click.argument("name", metavar="NAME")
@click.pass_context
def command(ctx: click.Context, name: str) -> None:
    """End a schedule, and free its name. What it submitted goes on; its history stays.

    \b
    Example:
      orchestrator schedule remove nightly
    """
    context = session.open_context(ctx)
    stored = management.remove(context, name)
    click.echo(f"Schedule {stored.name} is {stored.state}")
