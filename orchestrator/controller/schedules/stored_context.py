"""Stores where a schedule or graph was added, and with which environment, for later submissions."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path

from orchestrator import config, jobs
from orchestrator.controller.session import contexts
from orchestrator.controller.submission import intents

#: They locate the database. A controller uses its own.
_STATE_VARIABLES = frozenset({"ORCHESTRATOR_STATE_DIR", "ORCHESTRATOR_DATABASE"})


def variables(context: contexts.Context, inherit: Collection[str]) -> dict[str, str]:
    """Return the environment to store. inherit: variables that the specs name."""
    environment = jobs.Environment(inherit=tuple(inherit))
    stored = intents.stored_environment(context, environment, reason="the controller submits later")
    return {name: value for name, value in stored.items() if name not in _STATE_VARIABLES}


def restore(
    context: contexts.Context,
    *,
    folder: Path,
    environment: Mapping[str, str],
    profile: str,
    scheduler: str,
) -> contexts.Context:
    """Return the context for a submission in this folder and environment.

    Raises ConfigurationError if the configuration files there have become invalid or untrusted.
    """
    overrides = {"profile": profile, "scheduler": scheduler}
    configuration = config.load(environment, folder, overrides)
    current = context.configuration
    for note in configuration.notes:
        if note not in current.notes:
            context.reporter.warn(note)
    return dataclasses.replace(
        context,
        configuration=dataclasses.replace(
            configuration, state_dir=current.state_dir, database=current.database
        ),
        environ=environment,
        folder=folder,
        is_local=scheduler == "local",
    )
