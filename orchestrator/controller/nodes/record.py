"""Read the record of nodes: what the database knows about the nodes of all jobs."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from db import unit_of_work
from orchestrator import jobs, metrics, nodes
from orchestrator.controller.nodes import known_nodes
from orchestrator.controller.session import contexts
from orchestrator.slurm import fields

#: After so many half-lives a failure counts less than a thousandth.
HALF_LIVES = 10
#: Newest jobs whose throughput is compared with that of their repeats.
MAX_REPEATS = 1000
#: The first of these that a job has is its throughput: the median of its last values.
THROUGHPUTS = ("window_throughput", "throughput", "total_throughput")
LAST_VALUES = 5
#: A sweep submits many jobs in this time, and each reading takes up to seconds.
EXCLUDED_SECONDS = 30.0


def read(context: contexts.Context, since: datetime.datetime | None = None) -> list[nodes.Node]:
    """Return the nodes of all clusters, those with the highest scores first. Slurm is not asked.

    since: count only attempts that ended since then. Scores and what follows from them are always
    those by which jobs are submitted.
    """
    judged = _judged(context)
    if since is None:
        return judged
    counted = {(node.cluster, node.name): node for node in _scored(context, since)}
    rows = []
    for node in judged:
        own = counted.pop((node.cluster, node.name), None)
        if own is not None or node.is_excluded:
            own = own or nodes.Node(cluster=node.cluster, name=node.name)
            names = ("score", "is_excluded", "reason")
            rows.append(dataclasses.replace(own, **{name: getattr(node, name) for name in names}))
    # What is older than what counts.
    return [*rows, *counted.values()]


def _judged(context: contexts.Context) -> list[nodes.Node]:
    scored = _scored(context, None)
    known: dict[str, frozenset[str]] = {}
    with context.store.reading() as work:
        for cluster in {node.cluster for node in scored}:
            if names := known_nodes.stored(work, cluster):
                known[cluster] = names
    return nodes.select(scored, context.configuration.nodes, known)


def excluded(context: contexts.Context, cluster: str) -> list[nodes.Node]:
    """Return the nodes that jobs on this cluster are submitted without, as of the last half minute.

    None unless the configuration says so and Slurm's nodes are known.
    """
    if context.configuration.nodes.exclude != "auto" or context.is_local:
        return []
    now = context.clock.boot_seconds()
    read_at, excluded_nodes = context.excluded_nodes.get(cluster, (-math.inf, []))
    if now - read_at >= EXCLUDED_SECONDS:
        excluded_nodes = _excluded(context, cluster)
        context.excluded_nodes[cluster] = now, excluded_nodes
    return excluded_nodes


def _excluded(context: contexts.Context, cluster: str) -> list[nodes.Node]:
    settings = context.configuration.nodes
    scored = [node for node in _scored(context, None) if node.cluster == cluster]
    if not any(node.is_excluded for node in nodes.select(scored, settings, {})):
        return []
    known = known_nodes.of(context, cluster)
    if known is None:
        return []
    return [node for node in nodes.select(scored, settings, {cluster: known}) if node.is_excluded]


def _scored(context: contexts.Context, since: datetime.datetime | None) -> list[nodes.Node]:
    half_life = datetime.timedelta(days=context.configuration.nodes.half_life_days)
    now = context.clock.now()
    since = since or now - HALF_LIVES * half_life
    with context.store.reading() as work:
        ends = work.nodes.ends(since)
        stragglers = work.nodes.stragglers(since)
        repeats = _repeats(work, since)
    return nodes.assess(
        ends,
        repeats,
        stragglers,
        hosts_of=functools.cache(fields.expand_hosts),
        half_life=half_life,
        now=now,
    )


def _repeats(work: unit_of_work.UnitOfWork, since: datetime.datetime) -> list[nodes.Repeat]:
    rows: dict[int, dict[str, Any]] = {
        row["job_row"]: row for row in work.nodes.repeats(since, MAX_REPEATS)
    }
    if not rows:
        return []
    # What the controller and `metrics` have read; no log is read here.
    query = metrics.MetricQuery(job_rows=tuple(rows), names=THROUGHPUTS, last=LAST_VALUES)
    repeats = []
    for row, values in work.metrics.by_job(query).items():
        attempt = rows[row].pop("attempt")
        if throughput := _throughput([value for value in values if value.attempt == attempt]):
            repeats.append(nodes.Repeat(**rows[row], throughput=throughput))
    return repeats


def _throughput(values: Sequence[jobs.Metric]) -> float | None:
    by_name: Mapping[str, list[float]] = {
        name: [value.value for value in values if value.name == name and 0 < value.value < math.inf]
        for name in THROUGHPUTS
    }
    return next((statistics.median(each) for each in by_name.values() if each), None)
