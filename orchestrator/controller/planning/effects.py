"""What commands would do, for plans."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import errors, files, graphs, jobs, plans, specs
from orchestrator.controller.nodes import exclusion, record
from orchestrator.controller.planning import hours
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import job_scripts
from orchestrator.controller.sweeps import plan
from orchestrator.jobs import naming
from orchestrator.specs import ranks
from orchestrator.text import nouns

#: Of a program: a larger file is not part of the plan.
_FILE_LIMIT_BYTES = 64 * 1024 * 1024


def of_request(
    context: contexts.Context, request: job_scripts.Request, script: str
) -> plans.Effect:
    """Return what submitting one job, or a job array, would do."""
    spec = request.spec
    tasks = hours.tasks(spec)
    size = f"{tasks} tasks, each with " if tasks > 1 else ""
    nodes = nouns.count(spec.resources.nodes, "node")
    gpus = ranks.gpus_per_node(spec)
    what = f"{nodes} with {nouns.count(gpus, 'GPU')} each" if gpus else nodes
    exclusive = ", exclusive" if spec.exclusive else ""
    limit = f", time limit {spec.time_limit}" if spec.time_limit else ", no time limit"
    starts = hours.starts(spec)
    again = f", at most {starts} starts" if starts > 1 else ""
    action = (
        f"Submit {spec.name}: {size}{what}{exclusive}{limit}{again}, with code {_code(spec.code)}"
    )
    without, nodes_basis = _without_nodes(context, [exclusion.requested(spec, script)])
    return plans.Effect(
        actions=(action, *without),
        jobs=tasks,
        gpu_hours=hours.by_spec(context)(spec),
        basis={
            **_settings(context),
            **nodes_basis,
            f"the spec of {spec.name}": _digest(specs.to_json(spec)),
            f"the batch script of {spec.name}": _digest(script),
            **_files(context, [spec], request.source),
        },
        submits=True,
    )


def of_points(
    context: contexts.Context, name: str, prepared: plan.Prepared, resent: Sequence[jobs.Job] = ()
) -> plans.Effect:
    """Return what submitting points of a sweep would do; resent: jobs that Slurm never had."""
    of_each = map(hours.by_spec(context), (point.spec for point in prepared.points))
    actions = [
        f"Submit {nouns.count(len(points), 'point')} of {name}: "
        + " ... ".join(dict.fromkeys([points[0].name, points[-1].name]))
        for points in (ready.submission.points for ready in prepared.ready)
    ]
    if resent:
        actions.append(f"Submit {naming.names_of(resent)} of {name}, which Slurm never had")
    requested = [
        exclusion.requested(ready.submission.spec, ready.script.text) for ready in prepared.ready
    ]
    without, nodes_basis = _without_nodes(context, requested)
    return plans.Effect(
        actions=(*actions, *without),
        jobs=len(prepared.points) + len(resent),
        gpu_hours=hours.total([*of_each, *(hours.of_job(context, job) for job in resent)]),
        basis={
            **_settings(context),
            **nodes_basis,
            **{
                f"the batch script of {ready.submission.points[0].name}": _digest(
                    ready.script.text + specs.to_json(ready.submission.spec)
                )
                for ready in prepared.ready
            },
            **_states([point.job for point in prepared.points if point.job] + [*resent]),
            **_files(context, [point.spec for point in prepared.points], ""),
        },
        submits=True,
    )


def of_graph(
    context: contexts.Context,
    name: str,
    nodes: Sequence[tuple[graphs.StoredNode, Mapping[str, Any]]],
    of_nodes: Mapping[str, Sequence[jobs.JobSpec]],
) -> plans.Effect:
    """Return what submitting a graph would do; of_nodes: the specs of each node's jobs."""
    of_jobs = [spec for node_specs in of_nodes.values() for spec in node_specs]
    without, nodes_basis = _without_nodes(context, [*map(exclusion.requested, of_jobs)])
    return plans.Effect(
        actions=(
            *(
                f"Submit {node.name} of graph {name}: "
                + nouns.count(sum(map(hours.tasks, of_nodes[node.name])), "job")
                for node, _ in nodes
            ),
            *without,
        ),
        jobs=sum(map(hours.tasks, of_jobs)),
        gpu_hours=hours.total(map(hours.by_spec(context), of_jobs)),
        basis={
            **_settings(context),
            **nodes_basis,
            **{
                f"node {node.name}": _digest(json.dumps([node.after, data], default=str))
                for node, data in nodes
            },
            **_files(context, of_jobs, ""),
        },
        submits=True,
    )


def of_change(
    context: contexts.Context,
    verb: str,
    selected: Sequence[jobs.Job],
    *,
    runs: bool = False,
    submits: bool = False,
    objection: Callable[[jobs.Job], str] = lambda job: "",
    before: str = "",
) -> plans.Effect:
    """Return what a change of jobs would do.

    verb: "Cancel". runs: the jobs may use resources afterwards. objection: why a job cannot be
    changed. before: what is done first, as a sentence. Raises ConflictError if no job can be
    changed.
    """
    impossible = {job.row: why for job in selected if (why := objection(job))}
    possible = [job for job in selected if job.row not in impossible]
    if selected and not possible:
        raise errors.ConflictError("\n".join(dict.fromkeys(impossible.values())))
    of_each = [hours.of_job(context, job) for job in possible] if runs else []
    actions = [before] if before else []
    actions += [
        f"{verb} {naming.names_of(tasks)} ({tasks[0].name}, {_states_of(tasks)})"
        for tasks in naming.by_submission(possible)
    ]
    actions += [f"Not possible: {why}" for why in dict.fromkeys(impossible.values())]
    without, nodes_basis = _without_nodes(context) if submits else ((), {})
    return plans.Effect(
        actions=(*actions, *without),
        jobs=len(possible),
        gpu_hours=hours.total(of_each),
        basis={**_settings(context), **nodes_basis, **_states(selected)},
        submits=submits,
    )


def _states_of(tasks: Iterable[jobs.Job]) -> str:
    return ", ".join(dict.fromkeys(str(job.state) for job in tasks))


def _states(selected: Iterable[jobs.Job]) -> dict[str, str]:
    # A job that was requeued meanwhile is another attempt of it.
    return {f"{naming.name_of(job)} (@{job.row})": _state(job) for job in selected}


def _state(job: jobs.Job) -> str:
    return f"{job.state} (attempt {job.attempt})" if job.attempt else str(job.state)


def _settings(context: contexts.Context) -> dict[str, str]:
    values = [(setting.key, str(setting.value)) for setting in context.configuration.origins]
    return {"the configuration": _digest(json.dumps(values))}


def _without_nodes(
    context: contexts.Context, requested: Sequence[Collection[str]] = ()
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the nodes that jobs are submitted without, as sentences and as part of the basis.

    requested: of each job the nodes that it names, which are not excluded.
    """
    if context.configuration.nodes.exclude != "auto" or context.is_local:
        return (), {}
    by_all = set.intersection(*map(set, requested or [()]))
    nodes = record.excluded(context, clusters.facts(context).cluster)
    excluded = [node for node in nodes if node.name not in by_all]
    sentences = (f"Exclude {node.name} (nodes.exclude): {node.reason}" for node in excluded)
    return tuple(sentences), {"the excluded nodes": ",".join(node.name for node in excluded)}


def _files(
    context: contexts.Context, of_jobs: Sequence[jobs.JobSpec], source: str
) -> dict[str, str]:
    """Return the hashes of the spec's file and of the programs that run where they are."""
    paths = [Path(source)] if source.endswith(".toml") else []
    for spec in of_jobs:
        if spec.launch.script is not None and spec.code.tree is None:
            paths.append(Path(spec.chdir or "", spec.launch.script))
    found: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        try:
            content = files.read_bytes(context.folder / path, limit_bytes=_FILE_LIMIT_BYTES)
        except (OSError, ValueError):
            continue
        found[f"file {path}"] = _digest(content)
    return found


def _code(code: jobs.Code) -> str:
    return f"snapshot {code.tree[:12]}" if code.tree else "in its folder when it starts"


def _digest(content: str | bytes) -> str:
    encoded = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return f"{plans.records.DIGEST}{hashlib.sha256(encoded).hexdigest()}"
