"""orchestrator hold."""

from __future__ import annotations

import click

from orchestrator.cli import outcomes, session
from orchestrator.controller import hold


@click.command(short_help="Keep waiting jobs from starting.")
@session.selection
@outcomes.timeout_option
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    names: tuple[str, ...],
    labels: tuple[str, ...],
    timeout: float,
) -> None:
    """Keep waiting jobs from starting, and wait until Slurm shows that they are held.

    A job that runs is not touched: `requeue --hold` stops it and holds it.

    \b
    Example:
      orchestrator hold 123 124
    """
    context = session.open_context(ctx)
    wanted = session.chosen_jobs(context, references, names, labels, what="to hold")
    outcomes.tell(hold.hold(context, wanted, confirm_seconds=timeout), already="was held before")
