"""The computer that sent a command. Apart from Context, which loads the database's libraries."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Carried:
    """The working tree of another computer, in a copy of which a command runs here."""

    #: ID of its snapshot, which is stored
    tree: str
    #: the copy, which is removed when the command ends
    root: Path
    #: where the tree is from, for people
    origin: str
    #: where jobs start: it stays
    start_folder: Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caller:
    """Another computer, which sent a command."""

    #: ID of its request
    request: str
    carried: Carried | None = None

    @property
    def through(self) -> str:
        """By what the user acts, for the jobs' history."""
        return f"--host, request {self.request[:12]}"
