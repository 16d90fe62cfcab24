"""Graphs and their nodes. None of these commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import models, queries, service_tables

_GRAPH = service_tables.Graph
_NODE = service_tables.GraphNode


def add(
    session: orm.Session, graph: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]
) -> service_tables.Graph:
    """Store a graph and its nodes by their columns."""
    row = _GRAPH(**graph)
    session.add(row)
    session.flush()
    session.add_all([_NODE(graph_id=row.id, **node) for node in nodes])
    session.flush()
    return row


def graph(session: orm.Session, graph_id: int) -> service_tables.Graph | None:
    return session.get(_GRAPH, graph_id)


def newest(
    session: orm.Session, *, name: str | None = None, limit: int | None = None
) -> list[service_tables.Graph]:
    """Return graphs, newest first."""
    statement = sa.select(_GRAPH).order_by(_GRAPH.id.desc()).limit(limit)
    if name is not None:
        statement = statement.where(_GRAPH.name == name)
    return [*session.scalars(statement)]


def environment(session: orm.Session, graph_id: int) -> str | None:
    return session.scalar(sa.select(_GRAPH.environment).where(_GRAPH.id == graph_id))


def nodes(session: orm.Session, graph_id: int) -> list[service_tables.GraphNode]:
    """Return the nodes of a graph, each after those that it waits for."""
    statement = sa.select(_NODE).where(_NODE.graph_id == graph_id).order_by(_NODE.place)
    return [*session.scalars(statement)]


def spec(session: orm.Session, graph_id: int, name: str) -> str | None:
    statement = sa.select(_NODE.spec).where(_NODE.graph_id == graph_id, _NODE.name == name)
    return session.scalar(statement)


def unfinished(session: orm.Session) -> list[int]:
    """Return the open graphs of which a node is to be submitted, or a sweep's points are."""
    point, sweep = models.SweepPoint, models.Sweep
    unsent = sa.exists().where(
        sweep.id == _NODE.sweep_id,
        # Of one that was cancelled by itself nothing more is submitted.
        sweep.state == "open",
        point.sweep_id == sweep.id,
        point.job_row.is_(None),
    )
    unbound = sa.and_(_NODE.job_row.is_(None), _NODE.sweep_id.is_(None), _NODE.given_up.is_(None))
    statement = (
        sa.select(_GRAPH.id)
        .join(_NODE, _NODE.graph_id == _GRAPH.id)
        .where(_GRAPH.state == "open", sa.or_(unbound, unsent))
        .distinct()
        .order_by(_GRAPH.id)
    )
    return [*session.scalars(statement)]


def bind(session: orm.Session, graph_id: int, name: str, values: Mapping[str, Any]) -> bool:
    """Give a node its job or sweep; false where it has one, or the graph was cancelled."""
    is_open = sa.exists().where(_GRAPH.id == graph_id, _GRAPH.state == "open")
    statement = sa.update(_NODE).where(
        _NODE.graph_id == graph_id,
        _NODE.name == name,
        _NODE.job_row.is_(None),
        _NODE.sweep_id.is_(None),
        is_open,
    )
    return queries.row_count(session.execute(statement.values(**values))) == 1


def cancelled_with(session: orm.Session, job_row: int) -> str | None:
    """Return the name of the cancelled graph whose node was submitted with this job; else None.

    Of an array a node names the first task alone.
    """
    mine, first = orm.aliased(models.Job), orm.aliased(models.Job)
    statement = (
        sa.select(_GRAPH.name)
        .join(_NODE, _NODE.graph_id == _GRAPH.id)
        .join(first, first.row == _NODE.job_row)
        .join(mine, mine.submission_id == first.submission_id)
        .where(mine.row == job_row, _GRAPH.state == "cancelled")
    )
    return session.scalar(statement)


def set_state(session: orm.Session, graph_id: int, state: str) -> None:
    session.execute(sa.update(_GRAPH).where(_GRAPH.id == graph_id).values(state=state))
