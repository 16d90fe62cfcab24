"""orchestrator wait."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

import click

from orchestrator import errors, jobs
from orchestrator.cli import output, session, submit, verbs, views
from orchestrator.controller.actions import wait
from orchestrator.jobs import naming

#: After --timeout, for what has been begun to end by itself.
_GRACE_SECONDS = 2.0


@click.command(short_help="Wait until jobs have ended.")
@session.selection
@click.option("--timeout", type=verbs.Seconds(min=0), metavar="SECONDS", help="At most so long.")
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    names: tuple[str, ...],
    labels: tuple[str, ...],
    sweeps: tuple[str, ...],
    timeout: float | None,
    format_: str | None,
    as_json: bool,
) -> None:
    """Wait until jobs have ended; exit 0 only when every one is COMPLETED.

    Exit 1 when one ended otherwise, 124 when the time of --timeout is up before all have ended.

    Any number of waiters together make one squeue an interval. Whatever Slurm, the database and the
    logs do, it ends at most two seconds after the time of --timeout.

    \b
    Example:
      orchestrator wait 123 124
    """
    with _hard_limit(timeout):
        context = session.open_context(ctx)
        what = "to wait for"
        wanted = session.chosen_jobs(
            context, references, names, labels, sweeps, what=what, ended=True
        )
        rows = [job.row for job in wanted]
        ended = wait.wait(context, rows, timeout_seconds=timeout, changed=submit.reporter(context))
    if format_ is not None or as_json:
        chosen = output.chosen(format_, as_json)
        now = context.clock.now()
        plain = output.is_json(chosen)
        shown = [views.job_row(job, now) if plain else views.job_line(job, now) for job in ended]
        output.items("jobs", shown, views.JOB_COLUMNS, chosen)
    late = [job for job in ended if not job.ended]
    if late:
        raise errors.NotEndedError(
            f"{len(late)} of {len(ended)} have not ended after {timeout:g} s"
        )
    bad = [job for job in ended if job.state is not jobs.JobState.COMPLETED]
    if bad:
        alike: dict[tuple[str, jobs.JobState], list[jobs.Job]] = {}
        for job in bad:
            alike.setdefault((job.token, job.state), []).append(job)
        told = ", ".join(f"{naming.names_of(tasks)} {state}" for (_, state), tasks in alike.items())
        raise errors.OrchestratorError(f"{len(bad)} of {len(ended)} did not complete: {told}")


@contextlib.contextmanager
def _hard_limit(timeout_seconds: float | None) -> Iterator[None]:
    """End the process soon after the time-out, however long the database or a disk may take.

    They wait outside Python, where nothing can be raised. To end so is as safe as a kill.
    """
    if timeout_seconds is None:
        yield
        return
    seconds = min(timeout_seconds + _GRACE_SECONDS, threading.TIMEOUT_MAX)
    timer = threading.Timer(seconds, _end, [timeout_seconds])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(timeout_seconds: float) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(
            f"Error: the jobs have not ended after {timeout_seconds:g} s; the database or a disk "
            "did not answer in time",
            file=sys.stderr,
            flush=True,
        )
    os._exit(errors.NotEndedError.exit_code)
