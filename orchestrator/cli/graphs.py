"""orchestrator graph."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from orchestrator import errors, graphs
from orchestrator.cli import actions, commands, output
from orchestrator.cli.arguments import options
from orchestrator.cli.commands import argument
from orchestrator.cli.output import Column
from orchestrator.controller.graphs import graphs as graph_management
from orchestrator.controller.refresh import on_demand
from orchestrator.controller.schedules import submit_later
from orchestrator.controller.session import contexts
from orchestrator.rows import graph_rows, row_values

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


@graph_commands.command(
    "submit",
    "orchestrator graph submit examples/graph/nightly.toml",
    changes="jobs",
    prints=("graph_nodes",),
)
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


@graph_commands.command(
    "status",
    "orchestrator graph status nightly",
    table=NODE_COLUMNS,
    changes="nothing",
    prints=("graph_nodes",),
)
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
    on_demand.refresh(context, refresh)
    _print_nodes(context, graph, form)


@graph_commands.command(
    "list", "orchestrator graph list", table=GRAPH_COLUMNS, changes="nothing", prints=("graphs",)
)
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
                    **row_values.fields_of(graph, ("row", "name")),
                    "state": "ended" if has_ended and graph.state == "open" else graph.state,
                    "nodes": len(nodes),
                    "submitted": sum(node.is_bound for node in nodes),
                    "ended": has_ended,
                    **row_values.fields_of(graph, names),
                }
            )
    output.print_newest("graphs", rows, GRAPH_COLUMNS, form, limit)


@graph_commands.command(
    "cancel", "orchestrator graph cancel nightly", changes="jobs", prints=("graph_nodes",)
)
def cancel(
    context: contexts.Context,
    reference: str = _graph,
    timeout: float = actions.timeout_option,
    form: str | None = options.optional_form,
) -> None:
    """Cancel the jobs of a graph and submit no more nodes."""
    graph = graph_management.find(context, reference)
    live = graph_management.close(context, graph)
    name = f"{graph.name} (@{graph.row})"
    if live is not None:
        actions.cancel_live(context, live, timeout)
    if form is not None:
        _print_nodes(context, graph, form)
    elif live is None:
        click.echo(f"Graph {name} had already ended")
    else:
        click.echo(f"Cancelled graph {name}: {output.count(len(live), 'job')}")


def _print_nodes(context: contexts.Context, graph: graphs.StoredGraph, form: str) -> None:
    with context.store.reading() as work:
        rows = [
            graph_rows.node_row(graph, node, submit_later.jobs_of(work, node))
            for node in work.graphs.nodes(graph.row)
        ]
    output.print_rows("graph_nodes", rows, NODE_COLUMNS, form, line=_node_line)


def _node_line(row: output.Row) -> output.Row:
    is_sweep = row["kind"] == "sweep" and row["row"] is not None
    return {**row, "row": f"sweep @{row['row']}"} if is_sweep else row
