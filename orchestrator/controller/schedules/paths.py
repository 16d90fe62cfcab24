"""The context of what was given to the controller: where it was given, and with its variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path

from orchestrator import config, jobs
from orchestrator.controller.session import contexts
from orchestrator.controller.submission import environments

#: They say where this database is, which a controller knows.
_OF_STATE = frozenset({"ORCHESTRATOR_STATE_DIR", "ORCHESTRATOR_DATABASE"})


def variables(context: contexts.Context, inherit: Collection[str]) -> dict[str, str]:
    """Return the variables that are stored with what is given, for the jobs that become of it.

    inherit: names of those that the specs name.
    """
    environment = jobs.Environment(inherit=tuple(inherit))
    kept = environments.stored(context, environment, reason="the controller submits later")
    return {name: text for name, text in kept.items() if name not in _OF_STATE}


def there(
    context: contexts.Context,
    *,
    folder: Path,
    environment: Mapping[str, str],
    profile: str,
    scheduler: str,
) -> contexts.Context:
    """Return the context with the folder, variables and profile of then; its state is here.

    The files there are read, or left out with a note, as a command there would do.
    ConfigurationError where they have become wrong, or a project's file needs trust.
    """
    overrides = {"profile": profile, "scheduler": scheduler}
    configuration = config.load(environment, folder, overrides)
    here = context.configuration
    for note in configuration.notes:
        if note not in here.notes:
            context.reporter.warn(note)
    return dataclasses.replace(
        context,
        configuration=dataclasses.replace(
            configuration, state_dir=here.state_dir, database=here.database
        ),
        environ=environment,
        folder=folder,
        is_local=scheduler == "local",
    )
