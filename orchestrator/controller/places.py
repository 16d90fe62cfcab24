"""The context of what was given to the controller: where it was given, and with its variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from orchestrator import config
from orchestrator.controller import context as contexts


def there(
    context: contexts.Context,
    *,
    folder: Path,
    environment: Mapping[str, str],
    profile: str,
    scheduler: str,
) -> contexts.Context:
    """Return the context with the folder, variables and profile of then; its state is here.

    ConfigurationError where the configuration's files there have become wrong.
    """
    overrides = {"profile": profile, "scheduler": scheduler}
    configuration = config.load(environment, folder, overrides)
    here = context.configuration
    return dataclasses.replace(
        context,
        configuration=dataclasses.replace(
            configuration, state_dir=here.state_dir, database=here.database
        ),
        environ=environment,
        folder=folder,
        is_local=scheduler == "local",
    )
