"""orchestrator cancel."""

from __future__ import annotations

import click

from orchestrator import errors
from orchestrator.cli import session
from orchestrator.controller import cancel, query, unit_of_work


@click.command(short_help="Cancel jobs, and see that Slurm did.")
@click.argument("references", nargs=-1, metavar="[JOB...]")
@click.option("--name", "names", multiple=True, help="All live jobs of this name.")
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="All live ones with it."
)
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
    wanted = [session.one_job(context, reference) for reference in references]
    if names or labels:
        live = unit_of_work.JobQuery(names=names, labels=labels, live=True, limit=None)
        wanted += query.list_jobs(context, live)[0]
    elif not references:
        raise click.UsageError("name jobs to cancel, or --name or --label")
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
