"""orchestrator resubmit."""

from __future__ import annotations

import sys

import click

from orchestrator import errors, jobs
from orchestrator.cli import completing, session
from orchestrator.cli import submit as submit_command
from orchestrator.controller.resubmission import resubmit
from orchestrator.controller.submission import submit


@click.command(short_help="Send jobs again that have ended or that Slurm never got.")
@click.argument(
    "references",
    nargs=-1,
    required=True,
    metavar="JOB...",
    shell_complete=completing.job_references,
)
@click.option("--fresh", is_flag=True, help="Render the stored spec anew, by today's templates.")
@submit_command.queue_option
@click.option("--parsable", is_flag=True, help="Print the job IDs alone, one a line.")
@click.pass_context
def command(
    ctx: click.Context, references: tuple[str, ...], fresh: bool, queue: bool | None, parsable: bool
) -> None:
    """Send jobs again that have ended or that Slurm never got.

    A job that is NOT_SUBMITTED keeps its row, its script and its run folder: should Slurm have had
    it after all, only one of the two runs. One that has ended becomes a new job with the same
    script, from the folder where it was submitted. Tasks of an array that have ended become a new
    array of those tasks, with their numbers.

    \b
    Examples:
      orchestrator resubmit @7
      orchestrator resubmit '41_[3,7]'
    """
    context = session.open_context(ctx)
    if queue is None:
        queue = context.profile.queue_submissions
    wanted = [job for reference in references for job in session.jobs_of(context, reference)]
    together: dict[str, list[jobs.Job]] = {}
    for job in sorted({job.row: job for job in wanted}.values(), key=lambda job: job.row):
        together.setdefault(job.token, []).append(job)
    troubles: list[errors.OrchestratorError] = []
    for several in together.values():
        try:
            first = resubmit.resubmit(context, several, fresh=fresh, queue=queue, argv=sys.argv)
        except errors.OrchestratorError as exc:
            # What is wrong with one keeps no other from being sent.
            troubles.append(exc)
            continue
        told = submit_command.told_of(submit.tasks_of(context, first))
        named = first.array_job_id or first.job_id or f"@{first.row}"
        click.echo(named if parsable else told)
    if troubles:
        # 6 says that nothing went wrong but what was asked for.
        others = [exc for exc in troubles if not isinstance(exc, errors.ConflictError)]
        wrong = errors.OrchestratorError("\n".join(map(str, troubles)))
        wrong.exit_code = (others or troubles)[0].exit_code
        raise wrong
