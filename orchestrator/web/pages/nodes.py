"""Nodes: how the attempts on each of them ended."""

from __future__ import annotations

import collections
import dataclasses
import datetime

from starlette import requests, responses

from orchestrator import jobs
from orchestrator.slurm import fields
from orchestrator.web import site

AGES = {"1d": 1, "7d": 7, "30d": 30, "365d": 365}
_MAX_NODES = 500
#: These say nothing about the node.
_NEUTRAL = (jobs.JobState.CANCELLED, jobs.JobState.PREEMPTED)


@dataclasses.dataclass
class Node:
    """How attempts ended on a node."""

    name: str
    completed: int = 0
    failed: int = 0
    other: int = 0
    #: state or cause -> attempts
    causes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    last_failure_at: datetime.datetime | None = None
    last_failed_row: int = 0

    @property
    def share(self) -> float:
        """Failures among the attempts that completed or failed, in percent."""
        return 100 * self.failed / max(self.completed + self.failed, 1)


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    age = request.query_params.get("age", "30d")
    days = AGES.get(age, 30)
    since = web.context.clock.now() - datetime.timedelta(days=days)
    with web.context.store.reading() as work:
        attempts = work.job_lists.nodes_of_attempts(since)
    nodes: dict[str, Node] = {}
    for node_list, state, cause, count, ended_at, row in attempts:
        # All nodes of a job have its failure: which one was at fault is not known.
        for name in fields.expand_hosts(node_list):
            _add(nodes.setdefault(name, Node(name)), state, cause, count, ended_at, row)
    ordered = sorted(nodes.values(), key=lambda node: (-node.failed, -node.share, node.name))
    return site.page(
        "nodes.html.j2",
        nodes=ordered[:_MAX_NODES],
        hidden=max(0, len(ordered) - _MAX_NODES),
        ages=AGES,
        age=age if age in AGES else "30d",
    )


def _add(
    node: Node,
    state: jobs.JobState,
    cause: str | None,
    count: int,
    ended_at: datetime.datetime,
    row: int,
) -> None:
    if state is jobs.JobState.COMPLETED:
        node.completed += count
    elif state in _NEUTRAL or state not in jobs.TERMINAL:
        node.other += count
    else:
        node.failed += count
        node.causes[cause or state] += count
        if node.last_failure_at is None or ended_at > node.last_failure_at:
            node.last_failure_at, node.last_failed_row = ended_at, row
