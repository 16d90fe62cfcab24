"""Graph files: the order of nodes, and all problems reported at once."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import config, errors, graphs, sweeps
from orchestrator.toml import documents

BAD = """\
[graph]
name = "a b"
[graph.nodes.a]
spec = "prep.toml"
after_ok = ["b"]
[graph.nodes.b]
after_any = ["a", "train1"]
[graph.nodes.train]
spec = "train.toml"
after = ["a"]
"""


def build(text: str) -> dict[str, graphs.Node]:
    document, problems = documents.parse(text, "g.toml")
    assert problems == []
    _, nodes = graphs.build(document)
    return nodes


def test_all_problems_are_reported() -> None:
    with pytest.raises(errors.SpecError) as caught:
        build(BAD)
    problems = [f"{each.line}: {each.key}: {each.message}" for each in caught.value.problems]
    assert problems == [
        "2: graph.name: must be 1 to 100 letters, digits, dots, underscores and dashes, the first "
        'a letter or digit (got "a b")',
        "3: graph.nodes.a: is part of a cycle: a depends on b depends on a",
        '6: graph.nodes.b: needs spec, such as "train.toml"',
        '7: graph.nodes.b.after_any[1]: unknown node "train1". Did you mean "train"?',
        '10: graph.nodes.train.after: unknown key. Did you mean "after_ok"?',
    ]
    with pytest.raises(errors.SpecError, match=r"has no table \[graph\]"):
        build('[job]\nname = "x"\n')


@hypothesis.given(st.data())
def test_nodes_come_after_their_dependencies(data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(data.draw(st.integers(1, 8)))))
    lines = ['[graph]\nname = "g"']
    for index, number in enumerate(order):
        earlier = order[:index]
        after = data.draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        names = ", ".join(f'"n{each}"' for each in after)
        lines.append(f'[graph.nodes.n{number}]\nspec = "x.toml"\nafter_ok = [{names}]')
    shuffled = [lines[0], *data.draw(st.permutations(lines[1:]))]
    nodes = build("\n".join(shuffled))
    seen: set[str] = set()
    for name, node in nodes.items():
        assert {other for _, other in node.after} <= seen
        seen.add(name)
    assert len(seen) == len(order)


def test_stored_sweep_has_the_points_of_its_file() -> None:
    text = (
        '[job]\nname = "x"\ncomment = "a"\n[launch]\ncommand = "true"\n'
        '[sweep]\nkind = "list"\npoints = [{ "job.comment" = "b" }]\n'
    )
    document, _ = documents.parse(text, "s.toml")
    stored = documents.Document(data=document.data, origins={(): documents.Origin(source="s.toml")})
    read, again = (sweeps.expand(each, config.Profile()) for each in (document, stored))
    assert again.points == read.points
