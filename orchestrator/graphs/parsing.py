"""Read a graph from its TOML document, and find all problems in it."""

from __future__ import annotations

import dataclasses
import graphlib
from collections.abc import Iterator, Mapping

from orchestrator import errors
from orchestrator.graphs.records import KINDS, Node
from orchestrator.toml import documents, key_paths, schema, values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """`[graph]`: jobs and sweeps that depend on each other."""

    #: name of the graph; required
    name: str = ""
    nodes: Mapping[str, Node] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File:
    graph: Table = dataclasses.field(default_factory=Table)


def build(document: documents.Document) -> tuple[str, dict[str, Node]]:
    """Return the name and the nodes of a graph, each node after those that it depends on.

    Raises SpecError with all problems.
    """
    file, wrong = schema.build(document, _File)
    has_wrong_types = wrong != dict(schema.unknown_keys(document, _File))
    messages = [
        *([] if has_wrong_types else _check(file.graph, document)),
        *documents.forbidden_characters(document),
        *wrong.items(),
    ]
    # One message per key; the last one counts.
    problems = [document.problem(path, message) for path, message in dict(messages).items()]
    if problems:
        raise errors.SpecError(sorted(problems, key=lambda problem: problem.line or 0))
    nodes = file.graph.nodes
    order = _order(nodes).static_order()
    return file.graph.name, {name: nodes[name] for name in order}


def _order(nodes: Mapping[str, Node]) -> graphlib.TopologicalSorter[str]:
    return graphlib.TopologicalSorter(
        {name: [other for _, other in node.after if other in nodes] for name, node in nodes.items()}
    )


def _check(table: Table, document: documents.Document) -> Iterator[tuple[key_paths.KeyPath, str]]:
    """Yield the path and the message of each problem."""
    if "graph" not in document.data:
        yield (), "has no table [graph]"
        return
    at: key_paths.KeyPath = ("graph",)
    if not table.name:
        yield at, "needs name"
    elif misfit := values.form_error("name", table.name):
        yield (*at, "name"), f"{misfit} (got {schema.as_toml(table.name)})"
    if not table.nodes:
        yield at, "has no nodes: add one with [graph.nodes.NAME]"
    for name, node in table.nodes.items():
        here = (*at, "nodes", name)
        if values.form_error("name", name):
            yield here, "must be a name of letters, digits and . _ -"
        if not node.spec:
            yield here, 'needs spec, such as "train.toml"'
        for key in KINDS:
            for index, other in enumerate(getattr(node, key)):
                if other not in table.nodes:
                    near = schema.did_you_mean(other, table.nodes)
                    advice = f'Did you mean "{near}"?' if near else "The graph has no such node."
                    yield (*here, key, index), f"unknown node {schema.as_toml(other)}. {advice}"
    try:
        _order(table.nodes).prepare()
    except graphlib.CycleError as exc:
        # graphlib lists each node before its dependents.
        cycle = [str(name) for name in exc.args[1]]
        message = " depends on ".join(reversed(cycle))
        yield (*at, "nodes", cycle[-1]), f"is part of a cycle: {message}"
