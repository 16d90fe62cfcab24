"""Graphs and their nodes."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from db import queries
from db.tables.jobs import JOBS
from db.tables.service import GRAPH_NODES, GRAPHS
from db.tables.sweeps import SWEEP_POINTS, SWEEPS
from orchestrator.graphs import records

_GRAPH, _NODE = GRAPHS.c, GRAPH_NODES.c
_SELECT_GRAPHS = sa.select(
    _GRAPH.id.label("row"),
    *(_GRAPH[field.name] for field in dataclasses.fields(records.StoredGraph)[1:]),
)


class GraphStore(queries.Store):
    """The graphs within one transaction."""

    def add(
        self,
        nodes: Sequence[tuple[records.StoredNode, Mapping[str, Any]]],
        *,
        environment: Mapping[str, str],
        argv: Sequence[str],
        **fields: str | datetime.datetime,
    ) -> records.StoredGraph:
        """Store a graph; `nodes` with the keys of their specs, `fields` of StoredGraph."""
        texts = {"environment": json.dumps(dict(environment)), "argv": json.dumps(list(argv))}
        row = self._insert(GRAPHS, {"state": "open", **texts, **fields})
        columns = [
            {
                "graph_id": row,
                "name": node.name,
                "place": place,
                "kind": node.kind,
                "after": json.dumps(node.after),
                "source": node.source,
                # JSON lacks the dates and times of TOML, but no key of a spec takes one.
                "spec": json.dumps(document, default=str, ensure_ascii=False),
            }
            for place, (node, document) in enumerate(nodes, 1)
        ]
        self._connection.execute(sa.insert(GRAPH_NODES), columns)
        return self._graphs(_SELECT_GRAPHS.where(_GRAPH.id == row))[0]

    def get(self, row: int) -> records.StoredGraph | None:
        """Return the graph with this row number."""
        return next(iter(self._graphs(_SELECT_GRAPHS.where(_GRAPH.id == row))), None)

    def newest(
        self, *, name: str | None = None, limit: int | None = None
    ) -> list[records.StoredGraph]:
        """Return graphs, newest first; `name`: only those with this name."""
        statement = _SELECT_GRAPHS.order_by(_GRAPH.id.desc()).limit(limit)
        return self._graphs(statement if name is None else statement.where(_GRAPH.name == name))

    def _graphs(self, statement: sa.Select[Any]) -> list[records.StoredGraph]:
        rows = [row._asdict() for row in self._rows(statement)]
        return [
            records.StoredGraph(**{**row, "argv": tuple(json.loads(row["argv"]))}) for row in rows
        ]

    def nodes(self, row: int) -> list[records.StoredNode]:
        """Return the nodes of a graph, each after the nodes that it waits for."""
        statement = sa.select(GRAPH_NODES).where(_NODE.graph_id == row).order_by(_NODE.place)
        return [
            records.StoredNode(
                name=node.name,
                kind=node.kind,
                after=tuple((kind, other) for kind, other in json.loads(node.after)),
                source=node.source,
                job_row=node.job_row,
                sweep_row=node.sweep_id,
                given_up=node.given_up,
            )
            for node in self._rows(statement)
        ]

    def document(self, row: int, name: str) -> dict[str, Any]:
        """Return the keys of a node's spec."""
        statement = sa.select(_NODE.spec).where(_NODE.graph_id == row, _NODE.name == name)
        return cast("dict[str, Any]", json.loads(self._connection.execute(statement).scalar_one()))

    def environment(self, row: int) -> dict[str, str]:
        """Return the environment variables that the jobs of a graph get."""
        text = self._connection.scalar(sa.select(_GRAPH.environment).where(_GRAPH.id == row))
        return cast("dict[str, str]", json.loads(text or "{}"))

    def unfinished(self) -> list[int]:
        """Return the rows of open graphs with a node, or a point of a sweep, to be submitted."""
        point, sweep = SWEEP_POINTS.c, SWEEPS.c
        has_points_left = sa.exists().where(
            sweep.id == _NODE.sweep_id,
            # No further point of a sweep is submitted that was cancelled on its own.
            sweep.state == "open",
            point.sweep_id == sweep.id,
            point.job_row.is_(None),
        )
        is_unbound = sa.and_(
            _NODE.job_row.is_(None), _NODE.sweep_id.is_(None), _NODE.given_up.is_(None)
        )
        statement = (
            sa.select(_GRAPH.id)
            .join(GRAPH_NODES, _NODE.graph_id == _GRAPH.id)
            .where(_GRAPH.state == "open", sa.or_(is_unbound, has_points_left))
            .distinct()
            .order_by(_GRAPH.id)
        )
        return [*self._connection.scalars(statement)]

    def bind(
        self, row: int, name: str, *, job_row: int | None = None, sweep_row: int | None = None
    ) -> bool:
        """Give a node its job or sweep.

        False if the node has one already or its graph was cancelled: the transaction must then not
        be committed.
        """
        return self._change_unbound(row, name, {"job_row": job_row, "sweep_id": sweep_row})

    def give_up(self, row: int, name: str, why: str) -> bool:
        """Store that a node will not be submitted; False as in `bind`."""
        return self._change_unbound(row, name, {"given_up": why})

    def _change_unbound(self, row: int, name: str, columns: Mapping[str, object]) -> bool:
        statement = sa.update(GRAPH_NODES).where(
            _NODE.graph_id == row,
            _NODE.name == name,
            _NODE.job_row.is_(None),
            _NODE.sweep_id.is_(None),
            sa.exists().where(_GRAPH.id == row, _GRAPH.state == "open"),
        )
        return self._changed(statement.values(**columns)) == 1

    def cancelled_graph_of(self, job_row: int) -> str | None:
        """Return the name of the cancelled graph that submitted this job, if there is one."""
        # The node of an array has the row of its first task only.
        job, first = JOBS.alias("job"), JOBS.alias("first")
        statement = (
            sa.select(_GRAPH.name)
            .join(GRAPH_NODES, _NODE.graph_id == _GRAPH.id)
            .join(first, first.c.row == _NODE.job_row)
            .join(job, job.c.submission_id == first.c.submission_id)
            .where(job.c.row == job_row, _GRAPH.state == "cancelled")
        )
        return self._connection.scalar(statement)

    def cancel(self, row: int) -> None:
        """Store that no further node of a graph is submitted."""
        self._connection.execute(
            sa.update(GRAPHS).where(_GRAPH.id == row).values(state="cancelled")
        )
