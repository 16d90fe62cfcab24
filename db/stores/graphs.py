"""Graphs and their nodes."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import JOBS
from db.tables.service import GRAPH_NODES, GRAPHS
from db.tables.sweeps import SWEEP_POINTS, SWEEPS
from orchestrator.graphs import records

_GRAPH, _NODE = GRAPHS.c, GRAPH_NODES.c
_SELECT_GRAPHS = base.select(GRAPHS, records.StoredGraph)
_SELECT_NODES = base.select(GRAPH_NODES, records.StoredNode)


class GraphStore(base.Store):
    def add(
        self,
        nodes: Sequence[tuple[records.StoredNode, Mapping[str, Any]]],
        *,
        environment: Mapping[str, str],
        **fields: str | datetime.datetime | Sequence[str],
    ) -> records.StoredGraph:
        """Store a graph; `nodes` with the keys of their specs, `fields` of StoredGraph."""
        row = self._insert(GRAPHS, {"state": "open", "environment": environment, **fields})
        self._insert_many(
            GRAPH_NODES,
            [
                {
                    **{name: getattr(node, name) for name in ("name", "kind", "after", "source")},
                    "graph_id": row,
                    "place": place,
                    "spec": document,
                }
                for place, (node, document) in enumerate(nodes, 1)
            ],
        )
        return cast("records.StoredGraph", self.get(row))

    def get(self, row: int) -> records.StoredGraph | None:
        return self._first(records.StoredGraph, _SELECT_GRAPHS.where(_GRAPH.id == row))

    def newest(
        self, *, name: str | None = None, limit: int | None = None
    ) -> list[records.StoredGraph]:
        """Return graphs, newest first; `name`: only those with this name."""
        statement = _SELECT_GRAPHS.order_by(_GRAPH.id.desc()).limit(limit)
        if name is not None:
            statement = statement.where(_GRAPH.name == name)
        return self._records(records.StoredGraph, statement)

    def nodes(self, row: int) -> list[records.StoredNode]:
        """Return the nodes of a graph, each after the nodes that it waits for."""
        statement = _SELECT_NODES.where(_NODE.graph_id == row).order_by(_NODE.place)
        return self._records(records.StoredNode, statement)

    def document(self, row: int, name: str) -> dict[str, Any]:
        """Return the keys of a node's spec."""
        of_node = _NODE.graph_id == row, _NODE.name == name
        return self._scalar(dict, sa.select(_NODE.spec).where(*of_node)) or {}

    def environment(self, row: int) -> dict[str, str]:
        """Return the environment variables that the jobs of a graph get."""
        statement = sa.select(_GRAPH.environment).where(_GRAPH.id == row)
        return self._scalar(dict, statement) or {}

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
        )
        return self._scalars(statement.distinct().order_by(_GRAPH.id))

    def bind(
        self, row: int, name: str, *, job_row: int | None = None, sweep_row: int | None = None
    ) -> bool:
        """Give a node its job or sweep.

        False if the node has one already or its graph was cancelled: the transaction must then not
        be committed.
        """
        return self._change_unbound(row, name, {"job_row": job_row, "sweep_row": sweep_row})

    def give_up(self, row: int, name: str, why: str) -> bool:
        """Store that a node will not be submitted; False as in `bind`."""
        return self._change_unbound(row, name, {"given_up": why})

    def _change_unbound(self, row: int, name: str, fields: Mapping[str, object]) -> bool:
        is_open = sa.exists().where(_GRAPH.id == row, _GRAPH.state == "open")
        is_unbound = _NODE.job_row.is_(None), _NODE.sweep_id.is_(None)
        of_node = _NODE.graph_id == row, _NODE.name == name
        return self._update(GRAPH_NODES, fields, *of_node, *is_unbound, is_open) == 1

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
        self._update(GRAPHS, {"state": "cancelled"}, _GRAPH.id == row)
