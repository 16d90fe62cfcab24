"""orchestrator graph."""

from __future__ import annotations

import sys
import typing
from pathlib import Path

import click

from orchestrator import errors
from orchestrator.cli import output, session, settings, verbs, views

if typing.TYPE_CHECKING:
    from orchestrator.controller.session import contexts
    from orchestrator.graphs import records

NODE_COLUMNS = ("node", "kind", "state", "job_id", "after", "reason", "row")
GRAPH_COLUMNS = ("name", "state", "nodes", "submitted", "ended", "created_at", "row")


@click.group(name="graph", short_help="Submit jobs and sweeps that wait for each other.")
def command() -> None:
    """Submit jobs and sweeps that wait for each other."""


@command.command(name="submit", short_help="Submit all nodes of a graph, each exactly once.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@settings.scheduler_option
@output.format_option
@click.pass_context
def submit_(ctx: click.Context, file: Path, format_: str | None, as_json: bool) -> None:
    """Submit all nodes of a graph, each exactly once; Slurm lets them wait for each other.

    A node is a spec, of a job or of a sweep; its file is looked for beside the graph's. All of them
    are checked before anything is stored. If this command is killed, `orchestrator tick` goes on.

    \b
    Example:
      orchestrator graph submit examples/graph/nightly.toml
    """
    from orchestrator.controller.graphs import graphs

    context = session.open_context(ctx)
    prepared = graphs.prepare(context, file)
    graph = graphs.create(prepared, str(file), sys.argv)
    wrong = graphs.advance(prepared.context, graph, output.say)
    _show(context, graph, output.chosen(format_, as_json))
    if wrong:
        raise errors.ConflictError("\n".join(wrong))


@command.command(short_help="Show what the nodes of a graph do.")
@click.argument("graph", metavar="GRAPH")
@session.refresh_options
@output.format_option
@click.pass_context
def status(
    ctx: click.Context, graph: str, refresh_: bool | None, format_: str | None, as_json: bool
) -> None:
    """Show what the nodes of a graph (@3 or NAME, the newest of it) do.

    Of an array and of a sweep STATE counts the jobs.

    \b
    Example:
      orchestrator graph status nightly
    """
    from orchestrator.controller.graphs import graphs
    from orchestrator.controller.resubmission import resend

    context = session.open_context(ctx)
    found = graphs.find(context, graph)
    if refresh_ is not False:
        resend.refresh_or_warn(context, floor_seconds=0.0 if refresh_ else None)
    _show(context, found, output.chosen(format_, as_json))


@command.command(name="list", short_help="List the graphs, and how far they are.")
@output.limit_option
@output.format_option
@click.pass_context
def list_(ctx: click.Context, limit: int, format_: str | None, as_json: bool) -> None:
    """List the graphs, newest first. Slurm is not asked.

    \b
    Example:
      orchestrator graph list
    """
    from orchestrator.controller.graphs import graphs

    context = session.open_context(ctx)
    chosen = output.chosen(format_, as_json)
    rows: list[dict[str, object]] = []
    with context.store.reading() as work:
        for graph in work.graphs.newest(limit=limit):
            nodes = work.graphs.nodes(graph.row)
            rows.append(
                {
                    "row": graph.row if output.is_json(chosen) else f"@{graph.row}",
                    "name": graph.name,
                    "state": graph.state,
                    "nodes": len(nodes),
                    "submitted": sum(node.is_bound for node in nodes),
                    "ended": graphs.has_ended(work, graph),
                    "cluster": graph.cluster,
                    "scheduler": graph.scheduler,
                    "source": graph.source,
                    "folder": graph.folder,
                    "profile": graph.profile,
                    "created_at": graph.created_at,
                }
            )
    output.items("graphs", rows, GRAPH_COLUMNS, chosen)


@command.command(short_help="Cancel a graph: its jobs, and what is not submitted yet.")
@click.argument("graph", metavar="GRAPH")
@verbs.timeout_option
@click.pass_context
def cancel(ctx: click.Context, graph: str, timeout: float) -> None:
    """Cancel the jobs of a graph that have not ended, and submit nothing more of it.

    \b
    Example:
      orchestrator graph cancel nightly
    """
    from orchestrator.cli import cancel as jobs_cancel
    from orchestrator.controller.actions import cancel as cancelling
    from orchestrator.controller.graphs import graphs

    context = session.open_context(ctx)
    found = graphs.find(context, graph)
    live = graphs.close(context, found)
    if live is None:
        click.echo(f"Graph {found.name} (@{found.row}) had already ended")
        return
    outcomes = cancelling.cancel(context, live, confirm_seconds=timeout) if live else []
    jobs_cancel.raise_troubles(outcomes)
    count = f"{len(live)} job{'' if len(live) == 1 else 's'}"
    click.echo(f"Cancelled graph {found.name} (@{found.row}): {count}")


def _show(context: contexts.Context, graph: records.StoredGraph, chosen: str) -> None:
    from orchestrator.controller.schedules import submitted

    plain = output.is_json(chosen)
    rows: list[dict[str, object]] = []
    with context.store.reading() as work:
        for node in work.graphs.nodes(graph.row):
            found = submitted.jobs_of(work, node)
            counts: dict[str, int] = {}
            for job in found:
                counts[job.state] = counts.get(job.state, 0) + 1
            one = found[0] if len(found) == 1 and node.kind == "job" else None
            state = ", ".join(f"{n} {state}" for state, n in counts.items())
            newest = found[0] if found else None
            number = node.job_row if node.sweep_row is None else node.sweep_row
            reason = None if one is None or one.reason == "None" else one.reason
            rows.append(
                {
                    "graph": graph.name,
                    "graph_row": graph.row,
                    "node": node.name,
                    "kind": node.kind,
                    "state": str(one.state) if one else state or None,
                    "states": counts,
                    "job_id": newest and (newest.array_job_id or newest.job_id),
                    "after": [":".join(pair) for pair in node.after],
                    "reason": node.given_up or reason or (None if found else "not submitted yet"),
                    "given_up": node.given_up,
                    "source": node.source,
                    "row": number if plain else views.named(node),
                }
            )
    output.items("graph_nodes", rows, NODE_COLUMNS, chosen)
