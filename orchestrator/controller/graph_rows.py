"""Graphs in the store: rows <-> records, and the questions and changes in these words."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import orm

from db import graphs as queries
from db import service_tables
from orchestrator.jobs import naming


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredGraph:
    """A graph as it was submitted, less its nodes."""

    #: our own number, `@3`
    row: int
    name: str
    #: cancelled: nothing more of it is submitted
    state: Literal["open", "cancelled"]
    #: the file that it was read from
    source: str
    #: where it was submitted
    folder: str
    profile: str
    scheduler: str
    cluster: str
    created_at: datetime.datetime
    #: the command line
    argv: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredNode:
    """A node of a stored graph, and what it became."""

    name: str
    #: job or sweep
    kind: str
    #: kind of dependency and node
    after: tuple[tuple[str, str], ...]
    #: the file of its spec
    source: str
    job_row: int | None = None
    sweep_row: int | None = None
    #: why it is not submitted, and will not be by itself
    given_up: str | None = None

    @property
    def is_bound(self) -> bool:
        return self.job_row is not None or self.sweep_row is not None


class GraphStore:
    """The graphs within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def add(
        self,
        nodes: Sequence[tuple[StoredNode, Mapping[str, Any]]],
        *,
        environment: Mapping[str, str],
        argv: Sequence[str],
        **fields: Any,
    ) -> StoredGraph:
        """Store a graph and its nodes with the keys of their files; `fields` of StoredGraph."""
        graph = {
            "state": "open",
            "environment": json.dumps(dict(environment)),
            "argv": json.dumps(list(argv)),
            **fields,
        }
        columns = [
            {
                "name": node.name,
                "place": place,
                "kind": node.kind,
                "after": json.dumps(node.after),
                "source": node.source,
                # What TOML has and JSON lacks, times and dates, no key of a spec takes.
                "spec": json.dumps(document, default=str, ensure_ascii=False),
            }
            for place, (node, document) in enumerate(nodes, 1)
        ]
        return _graph_record(queries.add(self._db, graph, columns))

    def named(self, reference: str) -> StoredGraph | None:
        """Return the graph that `@3` or NAME means, of a name the newest."""
        if reference.startswith("@"):
            row = naming.row_named(reference)
            return None if row is None else self.get(row)
        return next(iter(self.newest(name=reference, limit=1)), None)

    def get(self, row: int) -> StoredGraph | None:
        found = queries.graph(self._db, row)
        return None if found is None else _graph_record(found)

    def newest(self, *, name: str | None = None, limit: int | None = None) -> list[StoredGraph]:
        """Return graphs, newest first."""
        return [_graph_record(row) for row in queries.newest(self._db, name=name, limit=limit)]

    def nodes(self, row: int) -> list[StoredNode]:
        """Return the nodes of a graph, each after those that it waits for."""
        return [
            StoredNode(
                name=node.name,
                kind=node.kind,
                after=tuple((kind, other) for kind, other in json.loads(node.after)),
                source=node.source,
                job_row=node.job_row,
                sweep_row=node.sweep_id,
                given_up=node.given_up,
            )
            for node in queries.nodes(self._db, row)
        ]

    def document(self, row: int, name: str) -> dict[str, Any]:
        """Return the keys of a node's spec."""
        text = queries.spec(self._db, row, name)
        assert text is not None, "graphs are never deleted"
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def environment(self, row: int) -> dict[str, str]:
        """Return the variables that a graph's jobs get."""
        found = json.loads(queries.environment(self._db, row) or "{}")
        assert isinstance(found, dict)
        return found

    def unfinished(self) -> list[int]:
        """Return the open graphs of which something is to be submitted."""
        return queries.unfinished(self._db)

    def bind(
        self, row: int, name: str, *, job_row: int | None = None, sweep_row: int | None = None
    ) -> bool:
        """Give a node its job or sweep; false: nothing may be committed, it has one."""
        return queries.bind(self._db, row, name, {"job_row": job_row, "sweep_id": sweep_row})

    def give_up(self, row: int, name: str, why: str) -> bool:
        """Store that a node will not be submitted by itself."""
        return queries.bind(self._db, row, name, {"given_up": why})

    def cancelled(self, job_row: int) -> str | None:
        """Return the name of the cancelled graph that this job was submitted in, if any."""
        return queries.cancelled_with(self._db, job_row)

    def set_state(self, row: int, state: Literal["open", "cancelled"]) -> None:
        queries.set_state(self._db, row, state)


def _graph_record(row: service_tables.Graph) -> StoredGraph:
    names = ("name", "source", "folder", "profile", "scheduler", "cluster", "created_at")
    return StoredGraph(
        row=row.id,
        state="cancelled" if row.state == "cancelled" else "open",
        argv=tuple(json.loads(row.argv)),
        **{name: getattr(row, name) for name in names},
    )
