"""orchestrator graph."""

from __future__ import annotations

import collections
import sys
from pathlib import Path

import click

from orchestrator import errors, graphs
from orchestrator.cli import actions, options, output, session
from orchestrator.cli.output import job_rows
from orchestrator.controller.actions import cancel as cancellation
from orchestrator.controller.graphs import graphs as graph_management
from orchestrator.controller.schedules import submitted
from orchestrator.controller.session import contexts

NODE_COLUMNS = ("node", "kind", "state", "job_id", "after", "reason", "row")
GRAPH_COLUMNS = ("name", "state", "nodes", "submitted", "ended", "created_at", "row")
_graph_argument = click.argument("reference", metavar="GRAPH")


@click.group("graph", cls=options.Group)
def graph_commands() -> None:
    """Submit jobs and sweeps that depend on each other.

    GRAPH is a name (the newest graph with that name) or a number such as `@3`.
    """


@graph_commands.command("submit")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@options.scheduler_option
@options.format_option
@session.with_context
def submit(context: contexts.Context, file: Path, form: str) -> None:
    """Submit all nodes of a graph, each exactly once.

    A node is the spec file of a job or sweep; its path is relative to FILE. All nodes are checked
    before anything is stored. Slurm starts each node after those that it depends on. If this
    command is killed, `orchestrator tick` submits the rest.

    \b
    Example:
      orchestrator graph submit examples/graph/nightly.toml
    """
    graph, problems = graph_management.submit_graph(context, file, sys.argv, output.note)
    _print_nodes(context, graph, form)
    if problems:
        raise errors.ConflictError("\n".join(problems))


@graph_commands.command("status")
@_graph_argument
@options.refresh_option
@options.format_option
@session.with_context
def status(context: contexts.Context, reference: str, refresh: bool | None, form: str) -> None:
    """Show the states of a graph's nodes.

    For an array or sweep, STATE is the number of jobs in each state.

    \b
    Example:
      orchestrator graph status nightly
    """
    graph = graph_management.find(context, reference)
    session.refresh(context, refresh)
    _print_nodes(context, graph, form)


@graph_commands.command("list")
@options.limit_option
@options.format_option
@session.with_context
def list_graphs(context: contexts.Context, limit: int, form: str) -> None:
    """List graphs and their progress.

    The newest graph is first. Slurm is not asked.

    \b
    Example:
      orchestrator graph list
    """
    names = ("cluster", "scheduler", "source", "folder", "profile", "created_at")
    rows: list[dict[str, object]] = []
    with context.store.reading() as work:
        for graph in work.graphs.newest(limit=limit):
            nodes = work.graphs.nodes(graph.row)
            rows.append(
                {
                    "row": graph.row if output.is_json(form) else f"@{graph.row}",
                    "name": graph.name,
                    "state": graph.state,
                    "nodes": len(nodes),
                    "submitted": sum(node.is_bound for node in nodes),
                    "ended": graph_management.has_ended(work, graph),
                    **output.fields_of(graph, names),
                }
            )
    output.print_rows("graphs", rows, GRAPH_COLUMNS, form)


@graph_commands.command("cancel")
@_graph_argument
@actions.timeout_option
@session.with_context
def cancel(context: contexts.Context, reference: str, timeout: float) -> None:
    """Cancel the jobs of a graph and submit no more nodes.

    \b
    Example:
      orchestrator graph cancel nightly
    """
    graph = graph_management.find(context, reference)
    live = graph_management.close(context, graph)
    name = f"{graph.name} (@{graph.row})"
    if live is None:
        click.echo(f"Graph {name} had already ended")
        return
    outcomes = cancellation.cancel(context, live, confirm_seconds=timeout) if live else []
    actions.raise_unless_cancelled(outcomes)
    click.echo(f"Cancelled graph {name}: {output.count(len(live), 'job')}")


def _print_nodes(context: contexts.Context, graph: graphs.StoredGraph, form: str) -> None:
    rows: list[dict[str, object]] = []
    with context.store.reading() as work:
        for node in work.graphs.nodes(graph.row):
            jobs_of_node = submitted.jobs_of(work, node)
            states = dict(collections.Counter(str(job.state) for job in jobs_of_node))
            newest = jobs_of_node[0] if jobs_of_node else None
            single = newest if len(jobs_of_node) == 1 and node.kind == "job" else None
            counts = ", ".join(f"{count} {state}" for state, count in states.items())
            row = node.job_row if node.sweep_row is None else node.sweep_row
            reason = None if single is None else job_rows.reason_of(single)
            rows.append(
                {
                    "graph": graph.name,
                    "graph_row": graph.row,
                    "node": node.name,
                    "kind": node.kind,
                    "state": single.state if single else counts or None,
                    "states": states,
                    "job_id": newest and (newest.array_job_id or newest.job_id),
                    "after": [":".join(pair) for pair in node.after],
                    "reason": node.given_up or reason or (None if newest else "not submitted yet"),
                    "given_up": node.given_up,
                    "source": node.source,
                    "row": row if output.is_json(form) else job_rows.reference_to(node),
                }
            )
    output.print_rows("graph_nodes", rows, NODE_COLUMNS, form)
