"""The score of each node, and which nodes jobs should avoid."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator import config, nodes
from orchestrator.jobs import JobState
from orchestrator.slurm import fields

NOW = datetime.datetime(2026, 11, 29, 8, 0, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def end(node_list: str, finding: str | None = None, *, days: float = 0, **given: Any) -> nodes.End:
    """An attempt that failed because of `finding`, or completed."""
    state = JobState.COMPLETED if finding is None else JobState.FAILED
    fields = {"cluster": "c", "name": "train", "state": state, "job_row": 7, **given}
    return nodes.End(node_list=node_list, finding=finding, at=NOW - days * DAY, **fields)


def assess(
    ends: list[nodes.End], repeats: Sequence[nodes.Repeat] = (), **more: Any
) -> list[nodes.Node]:
    return nodes.assess(
        ends, repeats, **more, hosts_of=fields.expand_hosts, half_life=7 * DAY, now=NOW
    )


def scores(ends: list[nodes.End]) -> dict[str, float]:
    return {node.name: round(node.score, 2) for node in assess(ends) if node.score}


FAULT = "device_fault: a GPU or its link is broken (Xid 79)"
NCCL = "nccl_error: NCCL could not connect"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        pytest.param([end("n1", FAULT), end("n1", FAULT, days=7)], {"n1": 1.5}, id="older"),
        pytest.param([end("n1", FAULT, days=-1)], {"n1": 1.0}, id="wrong clock"),
        pytest.param([end("n[1-4]", FAULT)], dict.fromkeys(("n1", "n2", "n3", "n4"), 0.25), id="4"),
        pytest.param(
            [end("n[1-4],n11", "device_fault: rank 2 on n1.site.org failed")], {"n1": 1.0}, id="who"
        ),
        pytest.param([end("n1", state=JobState.NODE_FAIL)], {"n1": 1.0}, id="requeued by Slurm"),
        pytest.param([end("n1", "oom_device: out of memory")], {}, id="own fault"),
        pytest.param([end("n1", None, state=JobState.CANCELLED)], {}, id="cancelled"),
        pytest.param([end(f"n{number}", FAULT) for number in range(4)], {}, id="breaks all nodes"),
        pytest.param([end("n1", NCCL), end("n1", count=9)], {}, id="never ran elsewhere"),
        pytest.param([end("n1", NCCL), end("n2", name="other")], {}, id="another job ran"),
        pytest.param([end("n1", NCCL), end("n2")], {"n1": 1.0}, id="ran elsewhere"),
        pytest.param(
            [end("n1", NCCL), end("n[2-3]", NCCL), end("n3", count=1), end("n4", count=2)],
            {"n1": 1.0, "n2": 0.5, "n3": 0.5},
            id="failed on some",
        ),
    ],
)
def test_scores(ends: list[nodes.End], expected: dict[str, float]) -> None:
    assert scores(ends) == expected


def repeats(slow_on: str, *values: float, key: str = "lr=1") -> list[nodes.Repeat]:
    """One run on each of n1, n2, ... with this throughput, and the last two on `slow_on`."""
    lists = [f"n{number}" for number in range(1, len(values) - 1)] + [slow_on, slow_on]
    return [
        nodes.Repeat(
            cluster="c", node_list=hosts, key=(1, key), throughput=value, at=NOW, job_row=row
        )
        for row, (hosts, value) in enumerate(zip(lists, values, strict=True), 1)
    ]


def test_a_node_is_slow_if_its_repeats_are_slower_than_those_on_other_nodes() -> None:
    slow = assess([], repeats("n9", 100, 101, 99, 100, 80, 81))
    assert [(node.name, node.score, node.problems) for node in slow] == [("n9", 2.0, "2 slow runs")]
    assert slow[0].last_problem_row == 5
    # Nodes that are always used together share the blame.
    pair = assess([], repeats("n[8-9]", 100, 101, 99, 100, 80, 81))
    assert [(node.name, node.score) for node in pair] == [("n8", 1.0), ("n9", 1.0)]
    # The alert about a slow rank names its node.
    sentence = "straggler: rank 3 on n12, GPU 1, takes 2.1 times as long as others"
    rank = nodes.Straggler(cluster="c", node_list="n[1,12]", sentence=sentence, at=NOW, job_row=3)
    (node,) = assess([], stragglers=[rank])
    assert (node.name, node.score, node.problems) == ("n12", 1.0, "1 slow run")
    for values in ((100, 101, 99, 100, 97, 96), (100, 60, 140, 100, 80, 81), (100, 80)):
        assert not any(node.slow_runs for node in assess([], repeats("n9", *values)))


def test_selection() -> None:
    ends = [end(name, FAULT, name=name) for name in ("n1", "n1", "n1", "n2", "n2", "n3", "n3")]
    ends += [end("old", FAULT), end("old", FAULT), end("n4", FAULT), end("n5", count=3)]
    rated = assess([*ends, end("n5", "python_exception: x"), end("n1", FAULT, cluster="d")])

    def selected(known: int | None = 40, **settings: Any) -> dict[str, tuple[bool, str]]:
        names = {} if known is None else {"c": {f"n{number}" for number in range(1, known + 1)}}
        chosen = nodes.select(rated, config.Nodes(**settings), names)
        return {node.name: (node.is_excluded, node.reason) for node in chosen if node.reason}

    limit = (False, "limit reached (nodes.max_excluded, nodes.max_excluded_percent)")
    assert selected() == {
        "n1": (True, "3 device_fault"),
        "n2": (True, "2 device_fault"),
        "n3": (True, "2 device_fault"),
        "old": (False, "no node of Slurm any more"),
    }
    assert selected(None)["old"] == (True, "2 device_fault")
    assert selected(10)["n1"][0] and selected(10)["n2"] == selected(10)["n3"] == limit
    assert selected(max_excluded=2)["n3"] == limit
    # A cluster keeps at least one node.
    assert selected(1)["n1"] == limit
    assert selected(exclude_after=3).keys() == {"n1"}
    assert selected(exclude_after=0) == {}
    node = next(node for node in rated if node.name == "n5")
    assert (node.completed, node.other, node.failures) == (3, 1, {})
