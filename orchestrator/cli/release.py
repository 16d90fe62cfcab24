"""orchestrator release."""

from __future__ import annotations

from collections.abc import Sequence

import click

from orchestrator import jobs
from orchestrator.cli import outcomes, verbs
from orchestrator.controller.actions import hold
from orchestrator.controller.session import contexts


@click.command(short_help="Let held jobs start.")
@verbs.verb("to release")
def command(
    context: contexts.Context, wanted: Sequence[jobs.Job], *, timeout_seconds: float
) -> None:
    """Let held jobs start, and wait until Slurm shows that they are held no more.

    Also jobs that were requeued in held state (REQUEUE_HOLD, SPECIAL_EXIT).

    \b
    Example:
      orchestrator release --name wrn-cifar100
    """
    outcomes.tell(
        hold.release(context, wanted, confirm_seconds=timeout_seconds), already="is not held"
    )
