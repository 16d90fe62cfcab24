"""orchestrator requeue."""

from __future__ import annotations

import click

from orchestrator.cli import outcomes, session
from orchestrator.controller import requeue


@click.command(short_help="Put jobs back into the queue, under the same job ID.")
@session.selection
@click.option("--hold", is_flag=True, help="They wait until `release`.")
@outcomes.timeout_option
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    names: tuple[str, ...],
    labels: tuple[str, ...],
    hold: bool,
    timeout: float,
) -> None:
    """Put jobs back into the queue, under the same job ID, and wait until Slurm shows it.

    What runs is stopped; the script begins anew, as the next attempt. A job that has ended can be
    requeued as long as Slurm remembers it (MinJobAge, often 5 minutes); later there is `resubmit`.

    \b
    Example:
      orchestrator requeue --hold 123
    """
    context = session.open_context(ctx)
    wanted = session.chosen_jobs(context, references, names, labels, what="to requeue")
    done = requeue.requeue(context, wanted, hold=hold, confirm_seconds=timeout)
    outcomes.tell(done, already="waits already")
