"""orchestrator top."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from orchestrator import errors, jobs
from orchestrator.cli import commands, session
from orchestrator.cli.commands import argument
from orchestrator.controller.session import contexts

if TYPE_CHECKING:
    from orchestrator.top import actions


@commands.command("top", "orchestrator top", "orchestrator top team=vision", changes="nothing")
def top(
    ctx: click.Context,
    words: tuple[str, ...] = argument(nargs=-1, metavar="[WORD]..."),
) -> None:
    """Show jobs, their logs and metrics full screen in the terminal.

    Lists live jobs and jobs that ended within the last day; tasks of an array with the same state
    are one line. Below are the log of the selected job, curves of its metrics, and why it failed or
    is pending. WORDs filter the list. `?` shows the keys: filter, sort, mark jobs, cancel and
    requeue them.

    The screen shows what the database and the logs contain. While it is open, Slurm is asked as
    `status` does, at most once in the profile's poll_floor_seconds.
    """
    terminal = _terminal()
    try:
        from orchestrator.top import app, background, listing
    except ModuleNotFoundError as error:
        raise errors.OrchestratorError(
            f"`top` needs {error.name}, which is not installed. Install it: "
            "pip install 'orchestrator[tui]'"
        ) from error
    context = session.open_context(ctx, quiet=True)
    shown = listing.Filter(words=" ".join(words))
    screen = app.Top(context, shown, refresh=_refresh, ingest=_ingest, act=_act)
    background.end_with_terminal(terminal)
    screen.run()
    if screen.error is not None:
        raise screen.error


def _terminal() -> int:
    """Return the file descriptor of the terminal. Raises UsageError if it cannot show a screen."""
    advice = "`orchestrator status --watch` prints the list"
    # textual reads stdin and draws on stderr.
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    handles = [stream.fileno() for stream in streams if stream is not None and stream.isatty()]
    if len(handles) < len(streams):
        raise click.UsageError(f"top needs a terminal; {advice}.")
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        raise click.UsageError(
            f"this terminal cannot move the cursor (TERM is dumb or not set); {advice}."
        )
    return handles[0]


# What talks to Slurm is imported after the first list is on the screen.


def _refresh(context: contexts.Context) -> None:
    from orchestrator.controller.resubmission import deferred_jobs

    deferred_jobs.refresh_or_warn(context)


def _ingest(context: contexts.Context, job: jobs.Job) -> None:
    from orchestrator.controller.metrics import ingest

    ingest.ingest_soon(context, job)


def _act(
    context: contexts.Context, action: actions.Action, selected: Sequence[jobs.Job]
) -> Sequence[str]:
    from orchestrator.top import actions

    if context.is_read_only:
        raise errors.ConflictError("--read-only or ORCHESTRATOR_READ_ONLY forbids it.")
    return actions.carry_out(context, action, selected)
