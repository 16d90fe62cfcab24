"""orchestrator logs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

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
        context.say(_no_place(job))
        return
    if path_:
        click.echo(path)
        return
    if follow_:
        blocks = logs.follow(
            path,
            done=lambda: _over(context, job.row),
            wait=context.sleep,
            lines=lines,
        )
    else:
        blocks = logs.tail(path, lines)
    try:
        _print(blocks, follow_)
    except errors.NotFoundError:
        context.say(_missing(context, job.row, path))


def _print(blocks: Iterator[bytes], follow_: bool) -> None:
    """Write a log to stdout: as it lies in the file, unless a person reads it."""
    if sys.stdout.isatty():
        for text in logs.for_terminal(blocks, hold=not follow_):
            click.echo(text, nl=False)
        return
    for block in blocks:
        sys.stdout.buffer.write(block)
        if follow_:
            sys.stdout.buffer.flush()


def _no_place(job: jobs.Job) -> str:
    if job.job_id is None:
        return f"no log yet: @{job.row} has no job ID ({job.state})"
    if job.tracked_name is not None:
        return (
            f"the log of {job.job_id} is not known; `orchestrator track {job.job_id} --log PATH` "
            "names it"
        )
    return f"no log yet: {job.job_id} is {job.state}"


def _missing(context: contexts.Context, row: int, path: str) -> str:
    with context.store.reading() as work:
        job = work.job(row)
        was_read = any(cursor.path == path and cursor.inode for cursor in work.log_cursors(row))
    if was_read:
        return f"the log {path} was deleted"
    if job is not None and job.state in jobs.TERMINAL:
        return f"no log: {path} is not there ({job.state})"
    return f"no log yet: {path}" + (f" ({job.state})" if job else "")


def _over(context: contexts.Context, row: int) -> bool:
    with contextlib.suppress(errors.DatabaseError):
        # Said nowhere: a log is followed on a full disk too, and the next look may go well.
        refresh.refresh(context)
    with context.store.reading() as work:
        job = work.job(row)
    return job is None or job.state in jobs.TERMINAL
