"""A graph: jobs and sweeps that wait for each other, from a TOML file. Pure."""

from __future__ import annotations

import dataclasses
import graphlib
from collections.abc import Iterator, Mapping

from orchestrator import documents, errors, shapes, toml_lines, values

#: Keys of a node and the kind of dependency that each is.
KINDS = {"after_ok": "afterok", "after_any": "afterany", "after_not_ok": "afternotok"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """`[graph.nodes.NAME]`: one job or sweep."""

    #: its spec, seen from the graph's own folder
    spec: str = ""
    #: nodes after whose good end, end, bad end it starts
    after_ok: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    after_not_ok: tuple[str, ...] = ()

    @property
    def after(self) -> tuple[tuple[str, str], ...]:
        """Return kind of dependency and node, each once."""
        pairs = [(kind, name) for key, kind in KINDS.items() for name in getattr(self, key)]
        return tuple(dict.fromkeys(pairs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """`[graph]`."""

    name: str = ""
    nodes: Mapping[str, Node] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File:
    graph: Table = dataclasses.field(default_factory=Table)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph that can be submitted."""

    name: str
    #: each after those that it waits for, else in the order of the file
    nodes: Mapping[str, Node]
    document: documents.Document


def build(document: documents.Document) -> Graph:
    """Return the graph of a file; SpecError with every problem there is."""
    found = [*shapes.unknown_keys(document, _File), *documents.refused_characters(document)]
    file, wrong = shapes.build(document, _File)
    found.extend(wrong.items())
    if not wrong:
        found.extend(_findings(file.graph, document))
    problems: dict[toml_lines.Path, errors.Problem] = {}
    for path, message in found:
        problems.setdefault(path, document.problem(path, message))
    if problems:
        raise errors.SpecError(sorted(problems.values(), key=lambda one: one.line or 0))
    nodes = file.graph.nodes
    order = _order(nodes).static_order()
    return Graph(
        name=file.graph.name, nodes={name: nodes[name] for name in order}, document=document
    )


def _order(nodes: Mapping[str, Node]) -> graphlib.TopologicalSorter[str]:
    return graphlib.TopologicalSorter(
        {name: [other for _, other in node.after if other in nodes] for name, node in nodes.items()}
    )


def _findings(table: Table, document: documents.Document) -> Iterator[tuple[toml_lines.Path, str]]:
    if "graph" not in document.data:
        yield (), "has no table [graph]: it is no graph"
        return
    at: toml_lines.Path = ("graph",)
    if not table.name:
        yield at, "needs name"
    elif misfit := values.misfit("name", table.name):
        yield (*at, "name"), f"{misfit} (got {shapes.shown(table.name)})"
    if not table.nodes:
        yield at, "has no nodes: [graph.nodes.NAME] makes one"
    for name, node in table.nodes.items():
        here = (*at, "nodes", name)
        if values.misfit("name", name):
            yield here, "must be a name of letters, digits and . _ -"
        if not node.spec:
            yield here, 'needs spec, such as "train.toml"'
        for key in KINDS:
            for place, other in enumerate(getattr(node, key)):
                if other not in table.nodes:
                    near = shapes.did_you_mean(other, table.nodes)
                    advice = f'Did you mean "{near}"?' if near else "It is none of this graph."
                    yield (*here, key, place), f"unknown node {shapes.shown(other)}. {advice}"
    try:
        _order(table.nodes).prepare()
    except graphlib.CycleError as exc:
        cycle = [str(name) for name in exc.args[1]]
        # From who waits to whom it waits for.
        told = " waits for ".join(reversed(cycle))
        yield (*at, "nodes", cycle[-1]), f"is in a circle: {told}"
