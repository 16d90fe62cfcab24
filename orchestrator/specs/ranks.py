"""How many ranks, tasks and GPUs a spec asks for."""

from __future__ import annotations

import re

from orchestrator import jobs


def ranks_per_node(spec: jobs.JobSpec) -> int | None:
    """Return the ranks a node that the spec tells; None: the GPUs that the job finds, else 1."""
    if spec.launch.nproc_per_node != "auto":
        return spec.launch.nproc_per_node
    if spec.resources.gpus_per_node is not None:
        return max(1, spec.resources.gpus_per_node)
    gpus = gpus_of_gres(spec.resources.gres or "")
    return None if gpus is None else max(1, gpus)


def gpus_of_gres(gres: str) -> int | None:
    """Return how many GPUs `gpu:a100:2,shard:1` asks for; None where it names none."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,]+)??(?::(\d+))?(?=,|$)", gres)
    return sum(int(count or 1) for count in counts) if counts else None


def tasks_per_node(spec: jobs.JobSpec) -> int | None:
    """Return --ntasks-per-node; None leaves it to --ntasks, or to a shell line of the user."""
    resources = spec.resources
    if resources.ntasks_per_node is not None or resources.ntasks is not None:
        return resources.ntasks_per_node
    if spec.launch.launcher == "srun":
        return ranks_per_node(spec) or 1
    return None if spec.launch.command is not None else 1


def gpus_per_node(spec: jobs.JobSpec) -> int:
    """Return the GPUs of a node that the spec asks for."""
    if spec.resources.gpus_per_node is not None:
        return spec.resources.gpus_per_node
    return gpus_of_gres(spec.resources.gres or "") or 0


def known_world_size(spec: jobs.JobSpec) -> int | None:
    """Return world_size() where the spec tells it; None where the job's node decides."""
    resources = spec.resources
    tasks = (resources.ntasks, resources.ntasks_per_node)
    is_told = ranks_per_node(spec) is not None or (
        spec.launch.launcher == "srun" and any(count is not None for count in tasks)
    )
    return world_size(spec) if is_told else None


def world_size(spec: jobs.JobSpec) -> int:
    """Return what a batch is divided among: the ranks, or the GPUs that one process uses."""
    resources = spec.resources
    if spec.launch.launcher == "python":
        return max(1, gpus_per_node(spec))
    if spec.launch.launcher == "srun" and resources.ntasks is not None:
        return resources.ntasks
    each = tasks_per_node(spec) if spec.launch.launcher == "srun" else ranks_per_node(spec)
    return resources.nodes * (each or 1)
