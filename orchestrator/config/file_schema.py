"""The schema of a configuration file, and the variables that set its keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from orchestrator.config import channels, paths, profiles
from orchestrator.toml import schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """The keys of a configuration file."""

    state_dir: str | None = None
    runs_dir: str | None = None
    templates_dir: str | None = None
    shared_folders: tuple[str, ...] = ()
    pattern_files: tuple[str, ...] = ()
    database: str | None = None
    profile: str | None = None
    pattern: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notices: Mapping[str, channels.Channel] = dataclasses.field(default_factory=dict)
    profiles: Mapping[str, profiles.Profile] = dataclasses.field(default_factory=dict)


def variables() -> dict[str, tuple[str, Any]]:
    """Return variable and type of each key that a variable sets; a profile's without the table."""
    hints = {**schema.fields_of(profiles.Profile), **schema.fields_of(File)}
    return {
        key: (f"ORCHESTRATOR_{key.upper()}", hint)
        for key, hint in hints.items()
        if key in paths.FOLDER_LISTS
        or (key != "name" and (schema.bare(hint) in (str, int, bool) or schema.is_choice(hint)))
    }
