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

    #: folder of the database, preferably on a local disk; default: ~/.local/state/orchestrator
    state_dir: str | None = None
    #: folder of the run folders, on a file system of the compute nodes; default:
    #: ~/orchestrator-runs
    runs_dir: str | None = None
    #: folder with your own template blocks
    templates_dir: str | None = None
    #: folders that other users may change, accepted by you
    shared_folders: tuple[str, ...] = ()
    #: TOML files of patterns
    pattern_files: tuple[str, ...] = ()
    #: URL of the database, `postgresql://...`; default: orchestrator.db in state_dir
    database: str | None = None
    #: name of the profile that is used; default: the only one
    profile: str | None = None
    #: patterns, by name
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
