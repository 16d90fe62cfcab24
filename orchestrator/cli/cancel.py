"""orchestrator cancel."""

from __future__ import annotations

import click

from orchestrator import errors
from orchestrator.cli import session
from orchestrator.controller import cancel


@click.command(short_help="Cancel jobs, and see that Slurm did.")
@session.selection
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=cancel.CONFIRM_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Look for the end at most so long.",
)
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    names: tuple[str, ...],
    labels: tuple[str, ...],
    timeout: float,
) -> None:
    """Cancel jobs, and wait until Slurm shows that they ended.

    scancel answers 0 even for jobs it does not know, so the queue is looked at afterwards.

    \b
    Example:
      orchestrator cancel 123
    """
    context = session.open_context(ctx)
    wanted = session.chosen_jobs(context, references, names, labels, what="to cancel")
    outcomes = cancel.cancel(context, wanted, confirm_seconds=timeout)
    for outcome in outcomes:
        job = outcome.job
        told = "had already ended:" if outcome.already else "is"
        click.echo(f"{job.job_id or f'@{job.row}'} {told} {job.state}")
    open_ = [outcome.job for outcome in outcomes if not outcome.confirmed]
    if open_:
        ids = ", ".join(str(job.job_id) for job in open_)
        raise errors.SlurmError(
            f"scancel was asked, but Slurm still shows {ids}; look again with `orchestrator status`"
        )
