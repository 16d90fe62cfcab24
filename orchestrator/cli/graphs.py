"""orchestrator graph."""

from __future__ import annotations

import collections
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator import errors, graphs, jobs
from orchestrator.cli import actions, commands, options, output, session
from orchestrator.cli.commands import argument
from orchestrator.cli.output import Column, job_rows
from orchestrator.controller.graphs import graphs as graph_management
from orchestrator.controller.schedules import submit_later
from orchestrator.controller.session import contexts

NODE_COLUMNS = (
    Column("node", "name"),
    Column("kind", drop=1),
    Column("state", "text"),
    Column("job_id"),
    Column("after", "parts", drop=3),
    Column("reason", "text", drop=4),
    Column("row", drop=2),
)
GRAPH_COLUMNS = (
    Column("name", "name"),
    Column("state"),
    Column("nodes"),
    Column("submitted", drop=2),
    Column("ended"),
    Column("created_at", drop=1),
    Column("row"),
)
_graph = argument(metavar="GRAPH")


@click.group("graph", cls=commands.Group)
def graph_commands() -> None:
    """Submit jobs and sweeps that depend on each other.

    GRAPH is a name (the newest graph with that name) or a number such as `@3`.
    """


@graph_commands.command("submit", "orchestrator graph submit examples/graph/nightly.toml")
def submit(
    context: contexts.Context,
    file: Path = argument(type=click.Path(path_type=Path, dir_okay=False, exists=True)),
    _scheduler: None = options.scheduler,
    snapshot: bool | None = options.snapshot,
    form: str = options.form,
) -> None:
    """Submit all nodes of a graph, each exactly once.

    A node is the spec file of a job or sweep; its path is relative to FILE. All nodes are checked
    before anything is stored. Slurm starts each node after those that it depends on. If this
    command is killed, `orchestrator tick` submits the rest.
    """
    graph, problems = graph_management.submit_graph(
        context, file, sys.argv, output.note, snapshot=snapshot
    )
    _print_nodes(context, graph, form)
    if problems:
        raise errors.ConflictError("\n".join(problems))


@graph_commands.command("status", "orchestrator graph status nightly", table=NODE_COLUMNS)
def status(
    context: contexts.Context,
    reference: str = _graph,
    refresh: bool | None = options.refresh,
    form: str = options.form,
) -> None:
    """Show the states of a graph's nodes.

    For an array or sweep, STATE is the number of jobs in each state.
    """
    graph = graph_management.find(context, reference)
    session.refresh(context, refresh)
    _print_nodes(context, graph, form)


@graph_commands.command("list", "orchestrator graph list", table=GRAPH_COLUMNS)
def list_graphs(
    context: contexts.Context, limit: int = options.limit, form: str = options.form
) -> None:
    """List graphs and their progress.

    The newest graph is first. STATE is open, ended (all nodes have ended or were given up, and no
    retry rule will start one again) or cancelled (no more nodes are submitted). Slurm is not
    queried.
    """
    names = ("cluster", "scheduler", "source", "folder", "profile", "created_at")
    rows: list[dict[str, object]] = []
    with context.store.reading() as work:
        for graph in work.graphs.newest(limit=limit + 1):
            nodes = work.graphs.nodes(graph.row)
            has_ended = graph_management.has_ended(work, graph)
            rows.append(
                {
                    **output.fields_of(graph, ("row", "name")),
                    "state": "ended" if has_ended and graph.state == "open" else graph.state,
                    "nodes": len(nodes),
                    "submitted": sum(node.is_bound for node in nodes),
                    "ended": has_ended,
                    **output.fields_of(graph, names),
                }
            )
    output.print_newest("graphs", rows, GRAPH_COLUMNS, form, limit)


@graph_commands.command("cancel", "orchestrator graph cancel nightly")
def cancel(
    context: contexts.Context, reference: str = _graph, timeout: float = actions.timeout_option
) -> None:
    """Cancel the jobs of a graph and submit no more nodes."""
    graph = graph_management.find(context, reference)
    live = graph_management.close(context, graph)
    name = f"{graph.name} (@{graph.row})"
    if live is None:
        click.echo(f"Graph {name} had already ended")
        return
    actions.cancel_live(context, live, timeout)
    click.echo(f"Cancelled graph {name}: {output.count(len(live), 'job')}")


def _print_nodes(context: contexts.Context, graph: graphs.StoredGraph, form: str) -> None:
    with context.store.reading() as work:
        rows = [
            _node_row(graph, node, submit_later.jobs_of(work, node))
            for node in work.graphs.nodes(graph.row)
        ]
    output.print_rows("graph_nodes", rows, NODE_COLUMNS, form, line=_node_line)


def _node_row(
    graph: graphs.StoredGraph, node: graphs.StoredNode, node_jobs: Sequence[jobs.Job]
) -> dict[str, object]:
    states = dict(collections.Counter(str(job.state) for job in node_jobs))
    newest = node_jobs[0] if node_jobs else None
    single = newest if len(node_jobs) == 1 and node.kind == "job" else None
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    reason = None if single is None else job_rows.reason_of(single)
    return {
        "graph": graph.name,
        "graph_row": graph.row,
        "node": node.name,
        "kind": node.kind,
        "state": single.state if single else counts or None,
        "states": states,
        "job_id": newest and (newest.array_job_id or newest.job_id),
        "after": [":".join(pair) for pair in node.after],
        "reason": node.given_up or reason or (None if newest else "not submitted yet"),
        **output.fields_of(node, ("given_up", "source")),
        "row": node.job_row if node.sweep_row is None else node.sweep_row,
    }


def _node_line(row: output.Row) -> output.Row:
    is_sweep = row["kind"] == "sweep" and row["row"] is not None
    return {**row, "row": f"sweep @{row['row']}"} if is_sweep else row
