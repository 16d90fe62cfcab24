"""The shape of a configuration file, and the variables that set its keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from orchestrator.config import channels, paths, profiles
from orchestrator.toml import schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """The shape of a configuration file."""

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


def variable_hints() -> dict[str, Any]:
    """Return the type of each key that a variable sets; a profile's keys without the profile."""
    hints = {**schema.fields_of(profiles.Profile), **schema.fields_of(File)}
    return {
        key: hint
        for key, hint in hints.items()
        if key in paths.FOLDER_LISTS or (_is_scalar(hint) and key != "name")
    }


def variable(key: str) -> str:
    """Return the name of the variable that sets a key."""
    return "ORCHESTRATOR_" + key.upper()


def _is_scalar(hint: Any) -> bool:
    return schema.bare(hint) in (str, int, bool) or schema.is_choice(hint)
