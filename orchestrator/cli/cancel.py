"""orchestrator cancel."""

from __future__ import annotations

from collections.abc import Sequence

import click

from orchestrator import errors, jobs
from orchestrator.cli import verbs
from orchestrator.controller import cancel
from orchestrator.controller import context as contexts


@click.command(short_help="Cancel jobs, and see that Slurm did.")
@verbs.verb("to cancel")
def command(
    context: contexts.Context, wanted: Sequence[jobs.Job], *, timeout_seconds: float
) -> None:
    """Cancel jobs, and wait until Slurm shows that they ended.

    scancel answers 0 even for jobs it does not know, so the queue is looked at afterwards.

    \b
    Example:
      orchestrator cancel 123
    """
    outcomes = cancel.cancel(context, wanted, confirm_seconds=timeout_seconds)
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
