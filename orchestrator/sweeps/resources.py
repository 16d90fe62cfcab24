"""Nodes and GPUs of a point, and the hours that it requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from orchestrator import config, jobs
from orchestrator.specs import ranks
from orchestrator.sweeps import records
from orchestrator.toml import values


def gpus_of_full_node(
    table: records.Table, requested: object, partitions: str | None, profile: config.Profile
) -> int:
    """Return the GPUs of a full node: the sweep's, else the partition's, else those requested.

    `requested`: resources.gpus_per_node. InvalidError if they are unknown.
    """
    if table.gpus_per_node is not None:
        return table.gpus_per_node
    names = (partitions or "").split(",")
    known = {
        profile.partitions[name].gpus_per_node for name in names if name in profile.partitions
    } - {None}
    if len(known) > 1:
        listed = " and ".join(map(str, sorted(filter(None, known))))
        raise records.InvalidError(
            f"partitions {partitions} have {listed} GPUs per node: set sweep.gpus_per_node"
        )
    size = next(iter(known), requested)
    if type(size) is not int:
        raise records.InvalidError(
            "the number of GPUs per node is unknown: set sweep.gpus_per_node, or gpus_per_node "
            "of the partition in the profile"
        )
    if size < 1:
        where = f"partition {partitions} has" if known else "resources.gpus_per_node gives"
        raise records.InvalidError(f"{where} no GPUs: use nodes instead of gpus")
    return size


def nodes_and_gpus(gpus: int, per_node: int) -> tuple[int, int]:
    """Return nodes and GPUs per node; InvalidError for a part of a node besides full ones."""
    if gpus <= per_node:
        return 1, gpus
    nodes, remainder = divmod(gpus, per_node)
    if remainder:
        raise records.InvalidError(
            f"{gpus} GPUs are not a whole number of nodes with {per_node} each: "
            f"use {nodes * per_node} or {(nodes + 1) * per_node}"
        )
    return nodes, per_node


def smallest_shapes(specs: Mapping[str, jobs.JobSpec]) -> set[str]:
    """Return the keys of the jobs with the fewest ranks."""
    counts = {key: ranks.world_size(spec) for key, spec in specs.items()}
    return {key for key, count in counts.items() if count == min(counts.values())}


def hours_of(spec: jobs.JobSpec, profile: config.Profile) -> tuple[float, float] | None:
    """Return the GPU-hours and node-hours that a job requests; None without a time limit.

    The default time limit is that of its partitions.
    """
    limits = [spec.time_limit]
    if spec.time_limit is None:
        names = (spec.partition or "").split(",")
        limits = [profile.partitions[n].max_time for n in names if n in profile.partitions]
    seconds = [None if limit is None else values.seconds(limit) for limit in limits]
    known = [number for number in seconds if number is not None]
    if not known or len(known) < len(seconds):
        return None
    node_hours = spec.resources.nodes * max(known) / 3600
    return node_hours * ranks.gpus_per_node(spec), node_hours


def total(points: Iterable[records.Point]) -> records.ResourceTotals:
    shapes = [point.shape for point in points]
    return records.ResourceTotals(
        points=len(shapes),
        gpu_hours=math.fsum(shape.gpu_hours or 0.0 for shape in shapes),
        node_hours=math.fsum(shape.node_hours or 0.0 for shape in shapes),
        points_without_time_limit=sum(shape.node_hours is None for shape in shapes),
    )
