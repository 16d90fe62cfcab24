"""The configuration of a call; kept apart from session.py, which loads the database."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from orchestrator import config, errors


def configuration_of(ctx: click.Context) -> config.Configuration:
    """Return the configuration; raises ConfigurationError with all its problems."""
    return config.load(os.environ, folder(), ctx.obj or {})


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
