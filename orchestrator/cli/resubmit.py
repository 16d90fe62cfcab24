"""orchestrator resubmit."""

from __future__ import annotations

import sys

import click

from orchestrator.cli import completing, session, submit
from orchestrator.controller import resubmit


@click.command(short_help="Send jobs again that have ended or that Slurm never got.")
@click.argument(
    "references",
    nargs=-1,
    required=True,
    metavar="JOB...",
    shell_complete=completing.job_references,
)
@click.option("--fresh", is_flag=True, help="Render the stored spec anew, by today's templates.")
@submit.queue_option
@click.option("--parsable", is_flag=True, help="Print the job IDs alone, one a line.")
@click.pass_context
def command(
    ctx: click.Context, references: tuple[str, ...], fresh: bool, queue: bool | None, parsable: bool
) -> None:
    """Send jobs again that have ended or that Slurm never got.

    A job that is NOT_SUBMITTED keeps its row, its script and its run folder: should Slurm have had
    it after all, only one of the two runs. One that has ended becomes a new job with the same
    script, from the folder where it was submitted.

    \b
    Example:
      orchestrator resubmit @7
    """
    context = session.open_context(ctx)
    if queue is None:
        queue = context.profile.queue_submissions
    wanted = [session.one_job(context, reference) for reference in references]
    for job in {job.row: job for job in wanted}.values():
        sent = resubmit.resubmit(context, job, fresh=fresh, queue=queue, argv=sys.argv)
        click.echo((sent.job_id or f"@{sent.row}") if parsable else submit.told_of(sent))
