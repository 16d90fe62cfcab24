"""orchestrator release."""

from __future__ import annotations

import click

from orchestrator.cli import outcomes, session
from orchestrator.controller import hold


@click.command(short_help="Let held jobs start.")
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
    """Let held jobs start, and wait until Slurm shows that they are held no more.

    Also jobs that were requeued in held state (REQUEUE_HOLD, SPECIAL_EXIT).

    \b
    Example:
      orchestrator release --name wrn-cifar100
    """
    context = session.open_context(ctx)
    wanted = session.chosen_jobs(context, references, names, labels, what="to release")
    outcomes.tell(hold.release(context, wanted, confirm_seconds=timeout), already="is not held")
