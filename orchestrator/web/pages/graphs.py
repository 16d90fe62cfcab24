"""Graphs of jobs and sweeps that depend on each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from starlette import requests, responses

from orchestrator import graphs
from orchestrator.controller.graphs import graphs as management
from orchestrator.controller.schedules import submit_later
from orchestrator.rows import graph_rows, row_values
from orchestrator.web import site

_MAX_GRAPHS = 100
#: Of a node as drawn, and the distance to the next one.
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y = 168, 40, 52, 16
#: What a dependency of each kind waits for.
KINDS = {"afterok": "success", "afterany": "end", "afternotok": "failure"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """A node as drawn; x and y are of its upper left corner, in px."""

    x: int
    y: int
    row: Mapping[str, object]
    #: address of its job or sweep; "": not submitted
    url: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edge:
    """A dependency as drawn: the path of its line in SVG, and one of KINDS."""

    path: str
    kind: str


def show_all(request: requests.Request) -> responses.Response:
    """List the newest graphs."""
    web = site.of(request)
    with web.context.store.reading() as work:
        rows = []
        for graph in work.graphs.newest(limit=_MAX_GRAPHS):
            nodes = work.graphs.nodes(graph.row)
            rows.append(
                {
                    **row_values.fields_of(graph, ("row", "name", "created_at", "source")),
                    "state": _state(graph, has_ended=management.has_ended(work, graph)),
                    "nodes": len(nodes),
                    "submitted": sum(node.is_bound for node in nodes),
                }
            )
    return site.page("graphs.html.j2", rows=rows, limit=_MAX_GRAPHS)


def show(request: requests.Request) -> responses.Response:
    """Draw one graph. Raises NotFoundError."""
    web = site.of(request)
    web.live.want_refresh()
    graph = management.find(web.context, f"@{request.path_params['row']}")
    with web.context.store.reading() as work:
        nodes = work.graphs.nodes(graph.row)
        rows = {
            node.name: graph_rows.node_row(graph, node, submit_later.jobs_of(work, node))
            for node in nodes
        }
        state = _state(graph, has_ended=management.has_ended(work, graph))
    boxes, edges, width, height = drawn(nodes, rows)
    return site.page(
        "graph.html.j2",
        graph=graph,
        state=state,
        boxes=boxes,
        edges=edges,
        width=width,
        height=height,
        box=(BOX_WIDTH, BOX_HEIGHT),
        kinds=KINDS,
    )


def _state(graph: graphs.StoredGraph, *, has_ended: bool) -> str:
    return "ended" if has_ended and graph.state == "open" else graph.state


def drawn(
    nodes: Sequence[graphs.StoredNode], rows: Mapping[str, Mapping[str, object]]
) -> tuple[list[Box], list[Edge], int, int]:
    """Return boxes in columns by their distance from the first nodes, and arrows between them."""
    columns: dict[str, int] = {}
    # The nodes are in the order of their dependencies.
    for node in nodes:
        columns[node.name] = 1 + max((columns.get(name, -1) for _, name in node.after), default=-1)
    filled: dict[int, int] = {}
    boxes: dict[str, Box] = {}
    for node in nodes:
        column = columns[node.name]
        line = filled[column] = filled.get(column, -1) + 1
        boxes[node.name] = Box(
            x=column * (BOX_WIDTH + GAP_X) + 4,
            y=line * (BOX_HEIGHT + GAP_Y) + 4,
            row=rows[node.name],
            url=_url(node),
        )
    edges = [
        Edge(path=_path(boxes[before], boxes[node.name]), kind=kind)
        for node in nodes
        for kind, before in node.after
        if before in boxes
    ]
    width = (max(columns.values(), default=0) + 1) * (BOX_WIDTH + GAP_X)
    height = (max(filled.values(), default=0) + 1) * (BOX_HEIGHT + GAP_Y)
    return list(boxes.values()), edges, width, height


def _url(node: graphs.StoredNode) -> str:
    if node.sweep_row is not None:
        return f"/sweeps/{node.sweep_row}"
    return "" if node.job_row is None else f"/jobs/{node.job_row}"


def _path(before: Box, after: Box) -> str:
    x, y = before.x + BOX_WIDTH, before.y + BOX_HEIGHT // 2
    end_x, end_y = after.x - 5, after.y + BOX_HEIGHT // 2
    middle = (x + end_x) // 2
    return f"M{x},{y} C{middle},{y} {middle},{end_y} {end_x},{end_y}"
