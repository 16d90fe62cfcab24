"""graphs: all nodes are stored at once and submitted one after the other, each exactly once.

A node gets its job in the transaction that stores the job's intent, and only if it has none: who is
killed in between leaves the rest to the next pass. Slurm itself does the waiting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from db import unit_of_work
from orchestrator import config, errors, graphs, jobs, specs, sweeps
from orchestrator.controller.graphs import dependents
from orchestrator.controller.schedules import stored_context, submitted
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import intents, render, submit
from orchestrator.controller.sweeps import plan, queries, submit_points
from orchestrator.jobs import naming
from orchestrator.toml import documents

#: A graph that was submitted by hand is sent by that command: it is not taken over before.
BY_HAND_SECONDS = 60
#: What will be the same at the next try.
_FOR_GOOD = (errors.SpecError, errors.ConfigurationError, errors.TemplateError, intents.NeverError)

Tell = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A graph of which every spec was checked and rendered."""

    context: contexts.Context
    graph: graphs.Graph
    #: in the order of submitting, each with the keys of its file
    nodes: tuple[tuple[graphs.StoredNode, Mapping[str, Any]], ...]
    #: names of the variables that its specs name
    inherit: frozenset[str]


def prepare(context: contexts.Context, path: Path) -> Prepared:
    """Return the graph of a file; SpecError with all that is wrong with it and its specs."""
    document, problems = documents.read(path)
    if problems:
        raise errors.SpecError(problems)
    graph = graphs.build(document)
    here = render.is_local(context.configuration, context.environ)
    there = context.with_scheduler("local" if here else "slurm")
    nodes: list[tuple[graphs.StoredNode, Mapping[str, Any]]] = []
    wrong: list[errors.Problem] = []
    inherit: set[str] = set()
    for name, node in graph.nodes.items():
        file = path.parent / node.spec
        at = ("graph", "nodes", name, "spec")
        if file.suffix != ".toml" or not file.is_file():
            wrong.append(document.problem(at, f"no such spec: {file}"))
            continue
        try:
            found, told = specs.read(file, environ=context.environ)
            kind, several = _check(there, found, told, str(file))
        except errors.SpecError as exc:
            wrong += exc.problems
            continue
        stored = graphs.StoredNode(name=name, kind=kind, after=node.after, source=str(file))
        nodes.append((stored, found.data))
        inherit.update(*(spec.environment.inherit for spec in several))
    if wrong:
        raise errors.SpecError(wrong)
    return Prepared(context=there, graph=graph, nodes=tuple(nodes), inherit=frozenset(inherit))


def _check(
    there: contexts.Context,
    document: documents.Document,
    problems: Sequence[errors.Problem],
    source: str,
) -> tuple[str, list[jobs.JobSpec]]:
    """Check a node's spec as its submission does; return job or sweep, and the specs in it."""
    if "sweep" in document.data:
        sweep = sweeps.expand(document, there.profile, problems, folder=there.folder)
        several = [point.spec for point in sweep.points]
        _plan(there, sweep, source, ())
    else:
        spec = specs.build(document, problems, there.folder)
        spec = config.with_profile(spec, there.configuration.profile)
        several = [spec]
        request = render.Request(spec=spec, source=source)
        script = render.render(there.configuration, request, is_local=there.is_local)
        render.refuse_too_many_tasks(request, clusters.facts(there))
        intents.check(there, spec, script.text)
    if any("?" in (spec.dependency or "") for spec in several):
        told = '"?" cannot go with a graph, which adds dependencies'
        raise errors.SpecError([document.problem(("job", "dependency"), told)])
    return "sweep" if "sweep" in document.data else "job", several


def create(prepared: Prepared, source: str, argv: Sequence[str]) -> graphs.StoredGraph:
    """Store a graph, nothing of it submitted; ConflictError while one of its name is at it."""
    there = prepared.context
    cluster = clusters.facts(there).cluster
    environment = stored_context.variables(there, prepared.inherit)
    with there.store.writing(durable=True) as work:
        for other in work.graphs.newest(name=prepared.graph.name, limit=1):
            if other.state == "open" and not has_ended(work, other):
                raise errors.ConflictError(
                    f"a graph {other.name} is there (@{other.row}) and has not ended: "
                    f"`orchestrator graph status @{other.row}` shows it"
                )
        return work.graphs.add(
            prepared.nodes,
            environment=environment,
            argv=argv,
            name=prepared.graph.name,
            source=source,
            folder=str(there.folder),
            profile=there.profile.name,
            scheduler="local" if there.is_local else "slurm",
            cluster=cluster,
            created_at=there.clock.now(),
        )


def find(context: contexts.Context, reference: str) -> graphs.StoredGraph:
    """Return the graph with a row, `@3`, or the newest with a name; raises NotFoundError."""
    with context.store.reading() as work:
        if reference.startswith("@"):
            row = naming.row_named(reference)
            found = None if row is None else work.graphs.get(row)
        else:
            found = next(iter(work.graphs.newest(name=reference, limit=1)), None)
    if found is None:
        raise errors.NotFoundError(
            f"no graph {reference!r} here; `orchestrator graph list` lists what is known"
        )
    return found


def has_ended(work: unit_of_work.UnitOfWork, graph: graphs.StoredGraph) -> bool:
    """Tell whether nothing more becomes of a graph by itself."""
    for node in work.graphs.nodes(graph.row):
        if not node.is_bound and node.given_up is None:
            return False
        if not submitted.has_ended(work, node):
            return False
    return True


def advance(there: contexts.Context, graph: graphs.StoredGraph, tell: Tell) -> list[str]:
    """Submit what is not submitted of a graph, in its order; return what went wrong."""
    wrong: list[str] = []
    with there.store.reading() as work:
        names = [node.name for node in work.graphs.nodes(graph.row)]
    for name in names:
        there.guard.check()
        with there.store.reading() as work:
            nodes = {node.name: node for node in work.graphs.nodes(graph.row)}
            node = nodes[name]
            if node.given_up is not None:
                continue
            lost = [other for _, other in node.after if nodes[other].given_up is not None]
            waits = [other for _, other in node.after if not nodes[other].is_bound]
            after = [] if lost or waits else _references(work, node, nodes)
        try:
            if node.is_bound:
                _send_rest(there, node, graph.argv, tell)
            elif lost:
                raise intents.NeverError(f"it could never start: {lost[0]} was given up")
            elif not waits:
                _submit(there, graph, node, after, tell)
        except _FOR_GOOD as exc:
            with there.store.writing() as work:
                given_up = work.graphs.give_up(graph.row, name, str(exc))
            wrong.append(f"{name} {'is given up' if given_up else 'failed'}: {exc}")
        except (errors.DatabaseError, errors.FencedError):
            raise
        except (errors.SlurmError, errors.ConflictError, errors.RunFolderError) as exc:
            wrong.append(f"{name}: {exc}")
    return wrong


def _references(
    work: unit_of_work.UnitOfWork,
    node: graphs.StoredNode,
    nodes: Mapping[str, graphs.StoredNode],
) -> list[str]:
    """Return what a node waits for, in the words of a dependency."""
    found: list[str] = []
    for kind, other in node.after:
        if nodes[other].sweep_row is not None:
            found.append(f"{kind}:sweep/@{nodes[other].sweep_row}")
        else:
            rows = [f"@{job.row}" for job in submitted.jobs_of(work, nodes[other])]
            found.append(":".join([kind, *rows]))
    return found


def _submit(
    there: contexts.Context,
    graph: graphs.StoredGraph,
    node: graphs.StoredNode,
    after: Sequence[str],
    tell: Tell,
) -> None:
    with there.store.reading() as work:
        data = work.graphs.document(graph.row, node.name)
    document = _with_dependency(data, node.source, after)

    def bind(work: unit_of_work.UnitOfWork, **of: int) -> None:
        if not work.graphs.bind(graph.row, node.name, **of):
            raise errors.ConflictError("another process submits it, or the graph was cancelled")

    def bind_job(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
        bind(work, job_row=added[0].row)

    def bind_sweep(work: unit_of_work.UnitOfWork, made: sweeps.StoredSweep) -> None:
        bind(work, sweep_row=made.row)

    if node.kind == "job":
        spec = config.with_profile(
            specs.build(document, (), there.folder), there.configuration.profile
        )
        request = render.Request(spec=spec, source=node.source, argv=graph.argv)
        job = submit.submit(there, request, queue=True, in_transaction=bind_job)
        waits = f"waits for room ({job.reason})" if job.is_deferred else ""
        is_in = waits or f"is batch job {job.array_job_id or job.job_id}"
        tell(f"{node.name} {is_in} (@{job.row}, {job.name})")
        return
    sweep = sweeps.expand(document, there.profile, folder=there.folder)
    prepared = _plan(there, sweep, node.source, graph.argv)
    made = submit_points.create(there, prepared, sweep, node.source, with_sweep=bind_sweep)
    tell(_sent(node, submit_points.submit_stored(prepared, made, sweep.points)))


def _send_rest(
    there: contexts.Context, node: graphs.StoredNode, argv: Sequence[str], tell: Tell
) -> None:
    """Submit the points of a node's sweep that nothing was submitted of."""
    if node.sweep_row is None:
        return
    with there.store.reading() as work:
        sweep = work.sweeps.get(node.sweep_row)
    assert sweep is not None, "sweeps are never deleted"
    if (sent := submit_points.submit_remaining(there, sweep, argv)) is not None:
        tell(_sent(node, sent))


def _plan(
    there: contexts.Context, sweep: sweeps.Sweep, source: str, argv: Sequence[str]
) -> plan.Prepared:
    scheduler = "local" if there.is_local else "slurm"
    return plan.prepare_sweep(there, sweep, source=source, argv=argv, scheduler=scheduler)


def _with_dependency(
    data: Mapping[str, Any], source: str, after: Sequence[str]
) -> documents.Document:
    whole = documents.Origin(source=source)
    document = documents.Document(data=data, origins={(): whole})
    if not after:
        return document
    own = data.get("job", {}).get("dependency")
    text = ",".join([own, *after] if own else after)
    graphs_own = documents.Origin(source="the graph")
    return documents.merge(document, documents.leaf(("job", "dependency"), text, graphs_own))


def _sent(node: graphs.StoredNode, sent: submit_points.Submitted) -> str:
    waiting = f", {sent.deferred} wait for room" if sent.deferred else ""
    return (
        f"{node.name} is sweep {sent.sweep.name} (@{sent.sweep.row}): "
        f"{sent.submitted} points submitted{waiting}"
    )


def step(context: contexts.Context) -> list[str]:
    """Go on with graphs that are not wholly submitted, and turn dependents to who goes on."""
    with context.store.reading() as work:
        unfinished = [work.graphs.get(row) for row in work.graphs.unfinished()]
    told: list[str] = []
    for graph in unfinished:
        assert graph is not None, "graphs are never deleted"
        age_seconds = (context.clock.now() - graph.created_at).total_seconds()
        if 0 <= age_seconds < BY_HAND_SECONDS:
            continue
        context.guard.check()
        said: list[str] = []
        try:
            there = _place(context, graph)
            if there is not None:
                said += advance(there, graph, said.append)
        except errors.ConfigurationError as exc:
            said.append(str(exc))
        told += [f"Graph {graph.name}: {one}" for one in said]
    return [*told, *dependents.update(context)]


def _place(context: contexts.Context, graph: graphs.StoredGraph) -> contexts.Context | None:
    """Return the context of what a graph submits; none: another host has to."""
    here = clusters.facts(context.with_scheduler(graph.scheduler)).cluster
    if here != graph.cluster or not Path(graph.folder).is_dir():
        return None
    with context.store.reading() as work:
        environment = work.graphs.environment(graph.row)
    return stored_context.restore(
        context,
        folder=Path(graph.folder),
        environment=environment,
        profile=graph.profile,
        scheduler=graph.scheduler,
    )


def close(context: contexts.Context, graph: graphs.StoredGraph) -> list[jobs.Job] | None:
    """Let nothing more of a graph be submitted; return its jobs of which more is to come.

    None: it had ended, and stays as it was.
    """
    with context.store.writing() as work:
        if has_ended(work, graph):
            return None
        work.graphs.cancel(graph.row)
        nodes = work.graphs.nodes(graph.row)
        closed = [work.sweeps.get(node.sweep_row) for node in nodes if node.sweep_row is not None]
    for sweep in closed:
        assert sweep is not None, "sweeps are never deleted"
        queries.close(context, sweep)
    with context.store.reading() as work:
        return [job for node in nodes for job in submitted.jobs_of(work, node) if not job.is_over]
