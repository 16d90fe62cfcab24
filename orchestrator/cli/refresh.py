"""orchestrator refresh."""

from __future__ import annotations

import click

from orchestrator import errors
from orchestrator.cli import session


@click.command(short_help="Ask Slurm about all live jobs now.")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Ask Slurm about all live jobs now, and read their logs.

    At most one squeue and one sacct for all of them. Exit code 5 when Slurm does not answer.

    \b
    Example:
      orchestrator refresh
    """
    from orchestrator.controller import ingest, refresh

    context = session.open_context(ctx)
    fresh = refresh.refresh(context, floor_seconds=0)
    stored = ingest.ingest_live(context)
    if fresh.failing_since is not None:
        since = fresh.failing_since.astimezone().isoformat(timespec="seconds")
        raise errors.SlurmError(f"Slurm has not answered since {since}: {fresh.error}")
    if fresh.accounts_error:
        context.say(f"Exit codes and times may be missing: {fresh.accounts_error}")
    context.say(f"{fresh.changed} jobs changed, {stored} metrics read")
