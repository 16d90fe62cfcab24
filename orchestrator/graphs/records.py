"""A graph as its file describes it, and as it is stored."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Literal

#: Keys of a node, and the kind of dependency that each means.
KINDS = {"after_ok": "afterok", "after_any": "afterany", "after_not_ok": "afternotok"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """`[graph.nodes.NAME]`: one job or sweep."""

    #: path of its spec, relative to the folder of the graph's file; required
    spec: str = ""
    #: nodes after whose success it starts
    after_ok: tuple[str, ...] = ()
    #: nodes after whose end it starts
    after_any: tuple[str, ...] = ()
    #: nodes after whose failure it starts
    after_not_ok: tuple[str, ...] = ()

    @property
    def after(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of the kind of dependency and the node, without duplicates."""
        pairs = [(kind, name) for key, kind in KINDS.items() for name in getattr(self, key)]
        return tuple(dict.fromkeys(pairs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredGraph:
    """A graph as it was submitted, without its nodes."""

    #: our own number, `@3`
    row: int
    name: str
    #: cancelled: no further node is submitted
    state: Literal["open", "cancelled"]
    #: the file that describes it
    source: str
    #: the folder in which it was submitted
    folder: str
    profile: str
    scheduler: str
    cluster: str
    created_at: datetime.datetime
    #: the command line
    argv: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredNode:
    """A node of a stored graph, with its job or sweep."""

    name: str
    #: job or sweep
    kind: str
    #: kind of dependency and node
    after: tuple[tuple[str, str], ...]
    #: the file of its spec
    source: str
    job_row: int | None = None
    sweep_row: int | None = None
    #: why it was not submitted and will not be
    given_up: str | None = None

    @property
    def is_bound(self) -> bool:
        return self.job_row is not None or self.sweep_row is not None
