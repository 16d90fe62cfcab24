"""Nodes of graphs as rows. The JSON fields are a contract."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from orchestrator import graphs, jobs
from orchestrator.rows import job_rows, row_values
from orchestrator.rows.contract import sweeps as contract


def node_row(
    graph: graphs.StoredGraph, node: graphs.StoredNode, node_jobs: Sequence[jobs.Job]
) -> dict[str, object]:
    """Return a node; `node_jobs`: the jobs that it submitted, the newest first."""
    states = dict(collections.Counter(str(job.state) for job in node_jobs))
    newest = node_jobs[0] if node_jobs else None
    single = newest if len(node_jobs) == 1 and node.kind == "job" else None
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    reason = None if single is None else job_rows.reason_of(single)
    return row_values.row_of(
        contract.NodeRow,
        node,
        graph=graph.name,
        graph_row=graph.row,
        node=node.name,
        state=single.state if single else counts or None,
        states=states,
        job_id=newest and (newest.array_job_id or newest.job_id),
        after=[":".join(pair) for pair in node.after],
        reason=node.given_up or reason or (None if newest else "not submitted yet"),
        row=node.job_row if node.sweep_row is None else node.sweep_row,
    )
