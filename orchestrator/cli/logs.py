"""orchestrator logs."""

from __future__ import annotations

import sys

import click

from orchestrator import errors, jobs, logs
from orchestrator.cli import completing, session
from orchestrator.controller import context as contexts
from orchestrator.controller import refresh


@click.command(short_help="Print a job's log.")
@click.argument("reference", metavar="JOB", shell_complete=completing.job_references)
@click.option("-n", "--lines", type=click.IntRange(min=0), help="The last N lines; default: all.")
@click.option("-f", "--follow", "follow_", is_flag=True, help="Go on as it grows, until the end.")
@click.option("--stderr", "stderr_", is_flag=True, help="The error log, where it is its own file.")
@click.option("--path", "path_", is_flag=True, help="Print where the log lies.")
@click.pass_context
def command(
    ctx: click.Context,
    reference: str,
    lines: int | None,
    follow_: bool,
    stderr_: bool,
    path_: bool,
) -> None:
    """Print a job's log.

    \b
    Examples:
      orchestrator logs 123 -n 20
      orchestrator logs digits-ddp -f
    """
    context = session.open_context(ctx)
    job = session.one_job(context, reference)
    path = job.stderr_path if stderr_ and job.stderr_path else job.stdout_path
    if path is None:
        context.say(f"no log yet: @{job.row} has no job ID ({job.state})")
        return
    if path_:
        click.echo(path)
        return
    shown = logs.safe if sys.stdout.isatty() else str
    if follow_:
        text = logs.follow(
            path,
            done=lambda: _over(context, job.row),
            wait=context.sleep,
            lines=lines,
        )
    else:
        text = logs.tail(path, lines)
    try:
        for piece in text:
            click.echo(shown(piece), nl=False)
    except errors.NotFoundError:
        context.say(f"no log yet: {path} ({job.state})")


def _over(context: contexts.Context, row: int) -> bool:
    refresh.refresh(context)
    with context.store.reading() as work:
        job = work.job(row)
    return job is None or job.state in jobs.TERMINAL
