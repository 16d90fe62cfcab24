"""What can be removed, and the marks that a removal leaves."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re

#: Kind of the entries in the history of jobs.
EVENT = "prune"
#: Their details, which are compared with stored ones.
FOLDER, ROWS = "pruned: run folder", "pruned: rows"
#: The end of the entry that Slurm is asked to change a job, which confirmed.ask writes.
REQUESTED = "requested"
#: What is being removed has this name; a later call removes it if the first one was killed.
_LEFTOVER = re.compile(r"\.pruned\..+\.(?P<token>[a-z0-9]{12})")


class Kind(enum.StrEnum):
    CHECKPOINTS = "checkpoints"
    RUN_FOLDER = "run folder"
    ROWS = "rows"
    SNAPSHOT = "code snapshot"
    #: what an interrupted removal left
    LEFTOVER = "leftover"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark:
    """When something of a job was removed, and what: FOLDER, ROWS, or another detail."""

    at: datetime.datetime
    detail: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """A job that is selected, or that goes only together with a selected one."""

    row: int
    #: the tasks of an array have the same token and run folder
    token: str
    #: row of the job that it continues; the checkpoints of a chain are in its first run folder
    continues: int | None = None
    #: its sweep and graph, "sweep 3", if their rows are to go too
    groups: frozenset[str] = frozenset()
    is_selected: bool = False
    #: why it must stay; "": it may go
    keep: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """Jobs that go only together."""

    #: ascending
    rows: tuple[int, ...]
    #: those that were selected
    selected: tuple[int, ...]
    #: why they stay; "": they go
    keep: str = ""


def leftover_name(folder_name: str) -> str:
    """Return the name of a run folder, NAME.TOKEN, while it is being removed."""
    return f".pruned.{folder_name}"


def leftover_token(name: str) -> str | None:
    """Return the token in the name of something that is being removed; None for other names."""
    match = _LEFTOVER.fullmatch(name)
    return match["token"] if match else None
