"""The configuration of a call; kept apart from session.py, which loads the database."""

from __future__ import annotations

import os
from pathlib import Path

import click

from orchestrator import config, errors


def configuration_of(ctx: click.Context) -> config.Configuration:
    """Return the configuration; raises ConfigurationError with all its problems."""
    return config.load(os.environ, folder(), ctx.obj or {})


def folder() -> Path:
    """Return the present folder; raises OrchestratorError where it was removed."""
    try:
        return Path.cwd()
    except OSError as exc:
        raise errors.OrchestratorError(
            f"the present folder cannot be used ({exc.strerror}); cd to another one"
        ) from exc
