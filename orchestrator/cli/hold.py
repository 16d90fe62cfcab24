"""orchestrator hold."""

from __future__ import annotations

from collections.abc import Sequence

import click

from orchestrator import jobs
from orchestrator.cli import outcomes, verbs
from orchestrator.controller.actions import hold
from orchestrator.controller.session import contexts


@click.command(short_help="Keep waiting jobs from starting.")
@verbs.verb("to hold")
def command(
    context: contexts.Context, wanted: Sequence[jobs.Job], *, timeout_seconds: float
) -> None:
    """Keep waiting jobs from starting, and wait until Slurm shows that they are held.

    A job that runs is not touched: `requeue --hold` stops it and holds it.

    \b
    Example:
      orchestrator hold 123 124
    """
    outcomes.tell(
        hold.hold(context, wanted, confirm_seconds=timeout_seconds), already="was held before"
    )
