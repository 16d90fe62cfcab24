"""Graphs: all nodes are stored at once and then submitted one after the other, each exactly once.

The transaction that stores the intent of a node's job also assigns the job to the node, unless the
node has one. If a process is killed in between, the next controller pass submits the rest. Slurm
itself waits for the dependencies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from db import unit_of_work
from orchestrator import config, errors, graphs, jobs, specs, sweeps
from orchestrator.controller.graphs import dependents
from orchestrator.controller.planning import agreement
from orchestrator.controller.schedules import submit_later
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import intents, job_scripts
from orchestrator.controller.sweeps import plan, queries, submit_points
from orchestrator.jobs import naming
from orchestrator.toml import documents

#: A new graph is submitted by the command that stored it; the controller does not interfere.
GRACE_SECONDS = 60
#: A retry would fail in the same way.
_PERMANENT = (errors.SpecError, errors.ConfigurationError, errors.TemplateError, intents.NeverError)

Report = Callable[[str], None]


def submit_graph(
    context: contexts.Context,
    path: Path,
    argv: Sequence[str],
    report: Report,
    *,
    snapshot: bool | None = None,
) -> tuple[graphs.StoredGraph, list[str]]:
    """Store the graph of a file and submit its nodes; return it and the problems.

    snapshot: overrides code.snapshot of the specs. All nodes run the code as it is now.

    Raises SpecError with all problems of the graph and its specs, and ConflictError if a graph of
    its name is running; then nothing was stored.
    """
    _, document, problems = documents.read(path)
    if problems:
        raise errors.SpecError(problems)
    name, nodes = graphs.build(document)
    is_local = job_scripts.is_local(context.configuration, context.environ)
    context = context.with_scheduler("local" if is_local else "slurm")
    checked: list[tuple[graphs.StoredNode, Mapping[str, Any], Sequence[jobs.JobSpec]]] = []
    inherit: set[str] = set()
    for node_name, node in nodes.items():
        file = path.parent / node.spec
        try:
            if file.suffix != ".toml" or not file.is_file():
                key_path = ("graph", "nodes", node_name, "spec")
                raise errors.SpecError([document.problem(key_path, f"no such spec: {file}")])
            flags = {} if snapshot is None else {"code.snapshot": snapshot}
            node_document, node_problems = specs.read(file, flags=flags, environ=context.environ)
            node_specs = _checked_specs(context, node_document, node_problems, str(file))
        except errors.SpecError as error:
            problems += error.problems
            continue
        kind = "sweep" if "sweep" in node_document.data else "job"
        new = graphs.StoredNode(name=node_name, kind=kind, after=node.after, source=str(file))
        checked.append((new, specs.to_store(node_document.data), node_specs))
        inherit.update(*(spec.environment.inherit for spec in node_specs))
    if problems:
        raise errors.SpecError(problems)
    stored_nodes = _with_code(context, checked)
    of_nodes = {new.name: node_specs for new, _, node_specs in checked}
    agreement.on_graph(context, name, stored_nodes, of_nodes)
    fields = clusters.current_fields(context)
    environment = submit_later.variables(context, inherit)
    with context.store.writing(durable=True) as work:
        for other in work.graphs.newest(name=name, limit=1):
            if other.state == "open" and not has_ended(work, other):
                raise errors.ConflictError(
                    f"graph {name} (@{other.row}) exists and has not ended: "
                    f"`orchestrator graph status @{other.row}` shows it"
                )
        graph = work.graphs.add(
            stored_nodes,
            environment=environment,
            argv=argv,
            name=name,
            source=str(path),
            **fields,
        )
    return graph, advance(context, graph, report)


def _with_code(
    context: contexts.Context,
    checked: Sequence[tuple[graphs.StoredNode, Mapping[str, Any], Sequence[jobs.JobSpec]]],
) -> list[tuple[graphs.StoredNode, Mapping[str, Any]]]:
    """Return the nodes with one snapshot for all that run in the same working tree."""
    due = [(new, spec) for new, _, of_node in checked for spec in of_node if spec.code.is_due]
    if not due:
        return [(new, data) for new, data, _ in checked]
    from orchestrator.controller.code import snapshots

    requests = [job_scripts.Request(spec=spec, source=new.source) for new, spec in due]
    codes: dict[str, list[jobs.Code]] = {}
    for (new, _), request in zip(due, snapshots.taken(context, requests), strict=True):
        codes.setdefault(new.name, []).append(request.spec.code)
    nodes: list[tuple[graphs.StoredNode, Mapping[str, Any]]] = []
    for new, data, _ in checked:
        if new.name in codes:
            data = snapshots.document_with(data, codes[new.name], new.source)
        nodes.append((new, data))
    return nodes


def _checked_specs(
    context: contexts.Context,
    document: documents.Document,
    problems: Sequence[errors.Problem],
    source: str,
) -> list[jobs.JobSpec]:
    """Check a node as its submission does; return its spec, or those of its points."""
    if "sweep" in document.data:
        sweep = sweeps.expand(document, context.profile, problems, folder=context.folder)
        node_specs = [point.spec for point in sweep.points]
        scheduler = "local" if context.is_local else "slurm"
        plan.prepare(
            context, sweep.table, sweep.points, source=source, argv=(), scheduler=scheduler
        )
    else:
        spec = specs.build(document, problems, context.folder)
        spec = config.with_profile(spec, context.configuration.profile)
        node_specs = [spec]
        request = job_scripts.Request(spec=spec, source=source)
        script = job_scripts.render(context.configuration, request, is_local=context.is_local)
        job_scripts.refuse_too_many_tasks(request, clusters.facts(context))
        intents.check(context, spec, script.text)
    if any("?" in (spec.dependency or "") for spec in node_specs):
        message = 'a graph adds dependencies, which cannot be combined with "?"'
        raise errors.SpecError([document.problem(("job", "dependency"), message)])
    return node_specs


def find(context: contexts.Context, reference: str) -> graphs.StoredGraph:
    """Return the graph with a row, `@3`, or the newest with a name. Raises NotFoundError."""
    with context.store.reading() as work:
        if reference.startswith("@"):
            row = naming.row_named(reference)
            graph = None if row is None else work.graphs.get(row)
        else:
            graph = next(iter(work.graphs.newest(name=reference, limit=1)), None)
    if graph is None:
        raise errors.NotFoundError(
            f"graph {reference!r} not found: `orchestrator graph list` lists all graphs"
        )
    return graph


def has_ended(work: unit_of_work.UnitOfWork, graph: graphs.StoredGraph) -> bool:
    """Return whether every node has been given up or has ended, and no retry follows."""
    return all(
        (node.is_bound or node.given_up is not None) and submit_later.has_ended(work, node)
        for node in work.graphs.nodes(graph.row)
    )


def advance(context: contexts.Context, graph: graphs.StoredGraph, report: Report) -> list[str]:
    """Submit the remaining nodes of a graph in their order; return the problems."""
    problems: list[str] = []
    with context.store.reading() as work:
        names = [node.name for node in work.graphs.nodes(graph.row)]
    for name in names:
        context.guard.check()
        with context.store.reading() as work:
            nodes = {node.name: node for node in work.graphs.nodes(graph.row)}
            node = nodes[name]
            if node.given_up is not None:
                continue
            before = [(kind, nodes[other]) for kind, other in node.after]
            lost = [other.name for _, other in before if other.given_up is not None]
            is_ready = all(other.is_bound for _, other in before)
            after = [_dependency(work, *each) for each in before] if is_ready and not lost else []
        try:
            if node.sweep_row is not None:
                with context.store.reading() as work:
                    sweep = work.sweeps.get(node.sweep_row)
                assert sweep is not None, "sweeps are never deleted"
                if points := submit_points.submit_remaining(context, sweep, graph.argv):
                    report(f"{name}: {submit_later.points_message(points)}")
            elif node.job_row is not None:
                continue
            elif lost:
                raise intents.NeverError(f"it can never start: {lost[0]} was given up")
            elif is_ready:
                _submit(context, graph, node, after, report)
        except _PERMANENT as error:
            with context.store.writing() as work:
                given_up = work.graphs.give_up(graph.row, name, str(error))
            problems.append(f"{name} {'is given up' if given_up else 'failed'}: {error}")
        except (errors.DatabaseError, errors.FencedError):
            raise
        except (errors.SlurmError, errors.ConflictError, errors.RunFolderError) as error:
            problems.append(f"{name}: {error}")
    return problems


def _dependency(work: unit_of_work.UnitOfWork, kind: str, node: graphs.StoredNode) -> str:
    """Return the dependency on a node in our notation: "afterok:@1"."""
    if node.sweep_row is not None:
        return f"{kind}:sweep/@{node.sweep_row}"
    return ":".join([kind, *(f"@{job.row}" for job in submit_later.jobs_of(work, node))])


def _submit(
    context: contexts.Context,
    graph: graphs.StoredGraph,
    node: graphs.StoredNode,
    after: Sequence[str],
    report: Report,
) -> None:
    def assign(work: unit_of_work.UnitOfWork, **rows: int) -> None:
        if not work.graphs.bind(graph.row, node.name, **rows):
            raise errors.ConflictError("another process submits it, or the graph was cancelled")

    with context.store.reading() as work:
        data = work.graphs.document(graph.row, node.name)
    document = specs.stored(data, node.source)
    if after:
        key = ("job", "dependency")
        own = document.get(key)
        text = ",".join([own, *after] if own else after)
        document = documents.with_value(document, key, text, "the graph")
    if node.kind == "sweep":
        sweep = sweeps.expand(document, context.profile, folder=context.folder)
        message = submit_later.submit_sweep(context, sweep, node.source, graph.argv, assign)
    else:
        spec = specs.build(document, (), context.folder)
        spec = config.with_profile(spec, context.configuration.profile)
        message = submit_later.submit_job(context, spec, node.source, graph.argv, assign)
    report(f"{node.name}: {message}")


def step(context: contexts.Context) -> list[str]:
    """Submit the remaining nodes of all graphs, and update the dependencies of pending jobs."""
    with context.store.reading() as work:
        unfinished = [work.graphs.get(row) for row in work.graphs.unfinished()]
    messages: list[str] = []
    for graph in unfinished:
        assert graph is not None, "graphs are never deleted"
        age_seconds = (context.clock.now() - graph.created_at).total_seconds()
        if 0 <= age_seconds < GRACE_SECONDS:
            continue
        context.guard.check()
        with context.store.reading() as work:
            environment = work.graphs.environment(graph.row)
            names = [node.name for node in work.graphs.nodes(graph.row)]
            node_specs = [work.graphs.document(graph.row, name) for name in names]
        is_stored = all(spec.get("code", {}).get("tree") for spec in node_specs)
        try:
            graph_context = submit_later.restore(
                context, graph, environment, is_code_stored=is_stored
            )
        except errors.ConfigurationError as error:
            messages.append(f"Graph {graph.name}: {error}")
            continue
        except errors.ConflictError:
            # Another host has to continue it.
            continue
        of_graph: list[str] = []
        of_graph += advance(graph_context, graph, of_graph.append)
        messages += [f"Graph {graph.name}: {message}" for message in of_graph]
    return [*messages, *dependents.update(context)]


def close(context: contexts.Context, graph: graphs.StoredGraph) -> list[jobs.Job] | None:
    """Submit no further nodes of a graph; return its unfinished jobs, or None if it had ended."""

    def not_over() -> list[jobs.Job]:
        with context.store.reading() as work:
            of_nodes = [submit_later.jobs_of(work, each) for each in work.graphs.nodes(graph.row)]
        return [job for of_node in of_nodes for job in of_node if not job.is_over]

    before = f"Submit no more nodes of graph {graph.name} (@{graph.row})"
    agreement.on_change(context, "Cancel", not_over, before=before)
    with context.store.writing() as work:
        if has_ended(work, graph):
            return None
        work.graphs.cancel(graph.row)
        nodes = work.graphs.nodes(graph.row)
        closed = [work.sweeps.get(node.sweep_row) for node in nodes if node.sweep_row is not None]
    for sweep in closed:
        assert sweep is not None, "sweeps are never deleted"
        queries.close(context, sweep)
    return not_over()
