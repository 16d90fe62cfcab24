"""What cancel, hold, release and requeue have in common: which jobs, and how long to look."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from orchestrator import errors
from orchestrator.cli import session
from orchestrator.controller.actions import confirmed


class Seconds(click.FloatRange):
    """A number of seconds; `nan`, which float() takes, would never be over."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if seconds != seconds:
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return seconds


def timeout_option(command: Callable[..., object]) -> Callable[..., object]:
    """Add --timeout."""
    return click.option(
        "--timeout",
        type=Seconds(min=0),
        default=confirmed.CONFIRM_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help="Look at most so long until Slurm shows it.",
    )(command)


def verb(what: str) -> Callable[[Callable[..., None]], Callable[..., object]]:
    """Add [JOB...], --name, --label, --sweep and --timeout.

    The command is called with the context, the chosen jobs, `timeout_seconds`, and options of its
    own. `what` is to be done with the jobs: "to hold".
    """

    def decorate(function: Callable[..., None]) -> Callable[..., object]:
        @session.selection
        @timeout_option
        @click.pass_context
        @functools.wraps(function)
        def command(
            ctx: click.Context,
            /,
            references: tuple[str, ...],
            names: tuple[str, ...],
            labels: tuple[str, ...],
            sweeps: tuple[str, ...],
            timeout: float,
            **options: Any,
        ) -> None:
            context = session.open_context(ctx)
            wanted = session.chosen_jobs(context, references, names, labels, sweeps, what=what)
            if sweeps and not wanted:
                raise errors.NotFoundError(f"no job of {', '.join(sweeps)} is live")
            function(context, wanted, timeout_seconds=timeout, **options)

        return command

    return decorate
