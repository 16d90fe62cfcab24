"""orchestrator schedule resume."""

from __future__ import annotations

import click

from orchestrator.cli import session
from orchestrator.controller.schedules import management


@click.command(short_help="Let a paused schedule go on.")
@click.argument("name", metavar="NAME")
@click.pass_context
def command(ctx: click.Context, name: str) -> None:
    """Let a paused schedule go on, from the next planned time after now.

    \b
    Example:
      orchestrator schedule resume nightly
    """
    context = session.open_context(ctx)
    stored = management.resume(context, name)
    click.echo(f"Schedule {stored.name} is {stored.state}")
