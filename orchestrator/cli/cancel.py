"""orchestrator cancel."""

from __future__ import annotations

from collections.abc import Sequence

import click

from orchestrator import errors, jobs
from orchestrator.cli import verbs
from orchestrator.controller.actions import cancel
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming


@click.command(short_help="Cancel jobs, and see that Slurm did.")
@verbs.verb("to cancel")
def command(
    context: contexts.Context, wanted: Sequence[jobs.Job], *, timeout_seconds: float
) -> None:
    """Cancel jobs, and wait until Slurm shows that they ended.

    scancel answers 0 even for jobs it does not know, so the queue is looked at afterwards.

    \b
    Examples:
      orchestrator cancel 123
      orchestrator cancel 124_3 '125_[0-9]'
    """
    tell(cancel.cancel(context, wanted, confirm_seconds=timeout_seconds))


def tell(outcomes: Sequence[cancel.Cancelled]) -> None:
    """Print what became of each job; raise an error that tells of those that have not ended."""
    alike: dict[str, list[jobs.Job]] = {}
    for outcome in outcomes:
        job = outcome.job
        if outcome.why:
            continue
        told = "had already ended:" if outcome.already else "is"
        more = "; it is not started again" if outcome.withdrawn else ""
        if outcome.followed_by is not None:
            more = f"; {naming.name_of(outcome.followed_by)} goes on with it"
        alike.setdefault(f"{job.token} {told} {job.state}{more}", []).append(job)
    for told, tasks in alike.items():
        click.echo(f"{naming.names_of(tasks)} {told.partition(' ')[2]}")
    raise_troubles(outcomes)


def raise_troubles(outcomes: Sequence[cancel.Cancelled]) -> None:
    """Raise an error that tells of those that have not ended."""
    troubles = list(dict.fromkeys(outcome.why for outcome in outcomes if outcome.why))
    open_ = [outcome.job for outcome in outcomes if not outcome.confirmed and not outcome.why]
    if open_:
        ids = naming.names_of(open_)
        asked = contexts.scheduler_name(open_)
        told = "scancel was asked" if asked == "Slurm" else "asked"
        troubles.append(
            f"{told}, but {asked} still shows {ids}; look again with `orchestrator status`"
        )
    if troubles:
        raise (errors.SlurmError if open_ else errors.ConflictError)("\n".join(troubles))
