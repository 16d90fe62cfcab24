"""orchestrator sweep cancel."""

from __future__ import annotations

import click

from orchestrator import jobs
from orchestrator.cli import cancel as jobs_cancel
from orchestrator.cli import session, verbs
from orchestrator.controller.sweeps import queries


@click.command(short_help="Cancel a sweep: its jobs, and what is not submitted yet.")
@click.argument("sweep", metavar="SWEEP")
@verbs.timeout_option
@click.pass_context
def command(ctx: click.Context, sweep: str, timeout: float) -> None:
    """Cancel the jobs of a sweep that have not ended, and submit nothing more of it.

    `sweep resume` submits what was not submitted, `sweep rerun --missing` what was cancelled too.

    \b
    Example:
      orchestrator sweep cancel digits-scaling
    """
    from orchestrator.controller.actions import cancel

    context = session.open_context(ctx)
    found = queries.find(context, sweep)
    left, live = queries.close(context, found)
    outcomes = cancel.cancel(context, live, confirm_seconds=timeout) if live else []
    jobs_cancel.raise_troubles(outcomes)
    more = f"; {left} were never submitted" if left else ""
    # Some may end by themselves before scancel reaches them.
    stopped = (jobs.JobState.CANCELLED, jobs.JobState.NOT_SUBMITTED)
    ended = sum(outcome.job.state not in stopped for outcome in outcomes)
    count = len(live) - ended
    points = f"{count} point{'' if count == 1 else 's'}"
    more += f"; {ended} had ended before" if ended else ""
    click.echo(f"Cancelled sweep {found.name} (@{found.row}): {points}{more}")
