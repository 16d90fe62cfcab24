"""orchestrator requeue."""

from __future__ import annotations

from collections.abc import Sequence

import click

from orchestrator import jobs
from orchestrator.cli import outcomes, verbs
from orchestrator.controller.actions import requeue
from orchestrator.controller.session import contexts


@click.command(short_help="Put jobs back into the queue, under the same job ID.")
@verbs.verb("to requeue")
@click.option("--hold", is_flag=True, help="They wait until `release`.")
def command(
    context: contexts.Context, wanted: Sequence[jobs.Job], *, timeout_seconds: float, hold: bool
) -> None:
    """Put jobs back into the queue, under the same job ID, and wait until Slurm shows it.

    What runs is stopped; the script begins anew, as the next attempt. A job that has ended can be
    requeued as long as Slurm remembers it (MinJobAge, often 5 minutes); later there is `resubmit`.

    \b
    Example:
      orchestrator requeue --hold 123
    """
    done = requeue.requeue(context, wanted, hold=hold, confirm_seconds=timeout_seconds)
    outcomes.tell(done, already="waits already")
