"""orchestrator schedule pause."""

from __future__ import annotations

import click

from orchestrator.cli import session
from orchestrator.controller.schedules import management


@click.command(short_help="Let a schedule plan nothing for a while.")
@click.argument("name", metavar="NAME")
@click.pass_context
def command(ctx: click.Context, name: str) -> None:
    """Let a schedule plan nothing until `schedule resume`.

    Times that are planned meanwhile are skipped; what was submitted before goes on.

    \b
    Example:
      orchestrator schedule pause nightly
    """
    context = session.open_context(ctx)
    stored = management.pause(context, name)
    click.echo(f"Schedule {stored.name} is {stored.state}")
