"""How many GPUs a point has, on how many nodes, and what it asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping

from orchestrator import config, jobs
from orchestrator.specs import ranks
from orchestrator.sweeps import records
from orchestrator.toml import documents, values


def node_size(
    table: records.Table,
    base: documents.Document,
    partitions: str | None,
    profile: config.Profile,
) -> tuple[int | None, str]:
    """Return the GPUs of a node that is used wholly, and why they are not known.

    The sweep's own word, else the partition's in the profile, else `[resources]`.
    """
    if table.gpus_per_node is not None:
        return table.gpus_per_node, ""
    names = (partitions or "").split(",")
    limits = [profile.partitions[name] for name in names if name in profile.partitions]
    sizes = {one.gpus_per_node for one in limits if one.gpus_per_node is not None}
    if len(sizes) > 1:
        told = " and ".join(map(str, sorted(sizes)))
        return None, f"partitions {partitions} have {told} GPUs a node: set sweep.gpus_per_node"
    resources = base.data.get("resources")
    asked = resources.get("gpus_per_node") if isinstance(resources, dict) else None
    size = sizes.pop() if sizes else asked if type(asked) is int else None
    if size is None:
        told = "how many GPUs a node has is not known: set sweep.gpus_per_node, or gpus_per_node"
        return None, f"{told} of the partition in the profile"
    if size < 1:
        where = f"partition {partitions} has" if limits else "resources.gpus_per_node says"
        return None, f"{where} no GPUs: use nodes in place of gpus"
    return size, ""


def shape(gpus: int, a_node: int) -> tuple[tuple[int, int] | None, str]:
    """Return nodes and GPUs of each, and why so many cannot be had."""
    if gpus <= a_node:
        return (1, gpus), ""
    nodes, rest = divmod(gpus, a_node)
    if not rest:
        return (nodes, a_node), ""
    told = f"{gpus} GPUs are no whole number of nodes with {a_node} each"
    return None, f"{told}: use {nodes * a_node} or {(nodes + 1) * a_node}"


def smallest(specs: Mapping[str, jobs.JobSpec]) -> set[str]:
    """Return the keys of the jobs with the fewest ranks."""
    ranks_of = {key: ranks.world_size(spec) for key, spec in specs.items()}
    fewest = min(ranks_of.values(), default=0)
    return {key for key, count in ranks_of.items() if count == fewest}


def resources_of(spec: jobs.JobSpec, profile: config.Profile) -> records.ResourceTotals:
    """Return what one job requests, if it runs until its time limit.

    Without a time limit, the longest time that its partition allows counts, if the profile has it.
    """
    limits = [
        profile.partitions[name].max_time
        for name in (spec.partition or "").split(",")
        if name in profile.partitions
    ]
    seconds = _longest([spec.time_limit] if spec.time_limit is not None else limits)
    if seconds is None:
        return records.ResourceTotals(points=1, points_without_time_limit=1)
    node_hours = spec.resources.nodes * seconds / 3600
    return records.ResourceTotals(
        points=1, gpu_hours=node_hours * ranks.gpus_per_node(spec), node_hours=node_hours
    )


def _longest(limits: list[str | None]) -> int | None:
    """Return the longest in seconds; none where one has no limit, or none is known."""
    seconds = [None if limit is None else values.seconds(limit) for limit in limits]
    known = [one for one in seconds if one is not None]
    return max(known) if known and len(known) == len(seconds) else None


def total(of: list[records.ResourceTotals]) -> records.ResourceTotals:
    """Return the sum."""
    return records.ResourceTotals(
        points=sum(one.points for one in of),
        gpu_hours=math.fsum(one.gpu_hours for one in of),
        node_hours=math.fsum(one.node_hours for one in of),
        points_without_time_limit=sum(one.points_without_time_limit for one in of),
    )
