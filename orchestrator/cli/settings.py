"""The configuration of a call; kept apart from session.py, which loads the database."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from orchestrator import config, errors
from orchestrator.cli import output

#: What was said already, in the context's meta: commands ask for the configuration repeatedly.
_SAID = "orchestrator.notes"


def configuration_of(
    ctx: click.Context, *, with_project: bool = True, quiet: bool = False
) -> config.Configuration:
    """Return the configuration; raises ConfigurationError with all its problems.

    Its notes go to stderr, once in a command, unless `quiet`.
    """
    found = config.load(os.environ, folder(), ctx.obj or {}, with_project=with_project)
    said = ctx.meta.setdefault(_SAID, set())
    for note in found.notes:
        if note not in said and not quiet:
            said.add(note)
            output.say(note)
    return found


def scheduler_option(command: Callable[..., object]) -> Callable[..., object]:
    """Add --scheduler; its value joins what stands before the command's name."""

    def keep(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.obj = {**(ctx.obj or {}), "scheduler": value}

    return click.option(
        "--scheduler",
        type=click.Choice(["auto", "slurm", "local"]),
        expose_value=False,
        callback=keep,
        help="auto: Slurm where sbatch is on PATH, else this machine.",
    )(command)


def folder() -> Path:
    """Return the present folder; raises OrchestratorError where it was removed."""
    try:
        return Path.cwd()
    except OSError as exc:
        raise errors.OrchestratorError(
            f"the present folder cannot be used ({exc.strerror}); cd to another one"
        ) from exc
