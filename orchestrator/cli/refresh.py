"""orchestrator refresh."""

from __future__ import annotations

import click

from orchestrator import errors, jobs
from orchestrator.cli import session


@click.command(short_help="Ask Slurm about all live jobs now.")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Ask Slurm about all live jobs now, and read their logs.

    At most one squeue and one sacct for all of them. What waits for room (`submit --queue`) is sent
    when it is due. Exit code 5 when Slurm does not answer.

    \b
    Example:
      orchestrator refresh
    """
    from orchestrator.controller.metrics import ingest
    from orchestrator.controller.resubmission import resend

    context = session.open_context(ctx)
    live = jobs.JobQuery(live=True, limit=None)
    with context.store.reading() as work:
        # Named before the refresh: one that ends in it has a log to be read to its end.
        rows = [job.row for job in work.jobs.find(live)]
    fresh = resend.refresh_and_send(context, floor_seconds=0)
    stored = ingest.ingest_rows(context, rows)
    if fresh.busy:
        context.reporter.info(
            "Another process is asking Slurm at this moment; its answer counts for all."
        )
    if fresh.failing_since is not None:
        since = fresh.failing_since.astimezone().isoformat(timespec="seconds")
        raise errors.SlurmError(f"Slurm has not answered since {since}: {fresh.error}")
    if fresh.accounts_error:
        context.reporter.info(f"Exit codes and times may be missing: {fresh.accounts_error}")
    context.reporter.info(f"{fresh.changed} jobs changed, {stored} metrics read")
