"""Launcher and number of ranks, tasks and GPUs of a spec."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Literal

from orchestrator import jobs
from orchestrator.specs import programs

if typing.TYPE_CHECKING:
    from orchestrator.specs import frameworks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The launcher of a job. python: one process on the first node; others are plugins."""

    launcher: Literal["torchrun", "srun", "python"] | str
    #: why `auto` means it; "" if the spec names it
    reason: str = ""


def choose(spec: jobs.JobSpec) -> Choice:
    """Return the launcher: torchrun for Python with several ranks, else none."""
    launch, nodes = spec.launch, spec.resources.nodes
    if launch.launcher != "auto":
        return Choice(launcher=launch.launcher)
    if (framework := framework_of(launch)) is not None:
        reason = f"{launch.framework} {framework.reason} ({framework.source})"
        return Choice(launcher=framework.launchers[0], reason=reason)
    if launch.command is not None or launch.batch_file is not None:
        return Choice(launcher="python", reason="shell text starts its programs itself")
    program = programs.python_program(launch)
    if program is None or not programs.is_rank(launch):
        shown = program.shown if program else "".join(programs.words(launch)[:1])
        what = "starts the ranks itself" if program else "is not a Python script or module"
        reason = f"{shown} {what}, so it runs as it is"
        if nodes > 1:
            reason += f", once, on the first of {nodes} nodes (srun starts it on each)"
        return Choice(launcher="python", reason=reason)
    per_node = ranks_per_node(spec)
    if per_node is None:
        reason = f"{program.shown} is Python, with one rank per GPU of an exclusive node"
    elif (count := nodes * per_node) > 1:
        shape = f"{nodes} nodes x {per_node}" if nodes > 1 else "one node"
        reason = f"{program.shown} is Python, with {count} ranks ({shape})"
    elif launch.rendezvous != "auto":
        reason = "launch.rendezvous is set"
    else:
        return Choice(
            launcher="python", reason=f"{program.shown} has one rank, so it runs as it is"
        )
    return Choice(launcher="torchrun", reason=reason)


def launcher_of(launch: jobs.Launch) -> str:
    """Return the launcher of the spec, else that of its framework; "auto": it has neither."""
    if launch.launcher != "auto" or (framework := framework_of(launch)) is None:
        return launch.launcher
    return framework.launchers[0]


def framework_name(launch: jobs.Launch) -> str | None:
    """Return the framework of the spec; the launcher ray implies its framework."""
    return launch.framework or ("ray" if launch.launcher == "ray" else None)


def framework_of(launch: jobs.Launch) -> frameworks.Framework | None:
    if (name := framework_name(launch)) is None:
        return None
    # Few specs name one.
    from orchestrator.specs import frameworks

    return frameworks.TABLE[name]


def acts_like(launch: jobs.Launch) -> str:
    """Return the launcher with the same tasks and ranks: torchrun for ray, else itself or auto."""
    launcher = launcher_of(launch)
    if launcher in ("auto", "torchrun", "srun", "python"):
        return launcher
    if launcher == "ray":
        return "torchrun"
    from orchestrator import plugins

    try:
        return plugins.load(plugins.Launcher, launcher).like
    except plugins.PluginError:
        # A stored job: here its plugin is not installed any more.
        return plugins.Launcher.like


def has_ranks(spec: jobs.JobSpec) -> bool:
    """Return whether the spec gives the number of ranks; else the program starts what it wants."""
    launch = spec.launch
    if launch.command is not None or launch.batch_file is not None:
        return False
    like = acts_like(launch)
    return programs.is_rank(launch) if like == "auto" else like != "python"


def ranks_per_node(spec: jobs.JobSpec) -> int | None:
    """Return the ranks per node; None: as many as GPUs on the job's node, at least 1."""
    if is_set_by_tasks(spec):
        return _tasks_as_ranks(spec.resources)
    if spec.launch.nproc_per_node != "auto":
        return spec.launch.nproc_per_node
    if spec.resources.gpus_per_node is not None:
        return max(1, spec.resources.gpus_per_node)
    gpus = gpus_of_gres(spec.resources.gres or "")
    if gpus is not None:
        return max(1, gpus)
    is_chosen = spec.launch.launcher == "auto" and programs.is_rank(spec.launch)
    # An exclusive node comes with all its GPUs.
    return 1 if is_chosen and not spec.exclusive else None


def is_set_by_tasks(spec: jobs.JobSpec) -> bool:
    """Return whether torchrun starts as many ranks as Slurm would start tasks.

    That is for a Python program without GPUs whose launcher is chosen.
    """
    launch, resources = spec.launch, spec.resources
    return (
        launch.launcher == "auto"
        and launcher_of(launch) in ("auto", "torchrun")
        and launch.nproc_per_node == "auto"
        and _tasks_as_ranks(resources) > 1
        and gpus_per_node(spec) == 0
        and programs.is_rank(launch)
    )


def _tasks_as_ranks(resources: jobs.Resources) -> int:
    per_node = resources.ntasks_per_node
    if per_node is None:
        return -(-(resources.ntasks or 1) // max(1, resources.nodes))
    return per_node


def gpus_of_gres(gres: str) -> int | None:
    """Return the number of GPUs in `gpu:a100:2,shard:1`; None if it names none."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,]+)??(?::(\d+))?(?=,|$)", gres)
    return sum(int(count or 1) for count in counts) if counts else None


def tasks_per_node(spec: jobs.JobSpec) -> int | None:
    """Return --ntasks-per-node; None: --ntasks or the user's shell line decides."""
    resources = spec.resources
    if resources.ntasks_per_node is not None or resources.ntasks is not None:
        return resources.ntasks_per_node
    if acts_like(spec.launch) == "srun":
        return ranks_per_node(spec) or 1
    return None if spec.launch.command is not None else 1


def gpus_per_node(spec: jobs.JobSpec) -> int:
    """Return the requested GPUs per node."""
    if spec.resources.gpus_per_node is not None:
        return spec.resources.gpus_per_node
    return gpus_of_gres(spec.resources.gres or "") or 0


def known_world_size(spec: jobs.JobSpec) -> int | None:
    """Return world_size(); None if it depends on the job's node."""
    tasks = (spec.resources.ntasks, spec.resources.ntasks_per_node)
    is_set_by_tasks = acts_like(spec.launch) == "srun" and tasks != (None, None)
    return world_size(spec) if is_set_by_tasks or ranks_per_node(spec) is not None else None


def world_size(spec: jobs.JobSpec) -> int:
    """Return what a batch is divided among: the ranks, or the GPUs of a single process."""
    resources = spec.resources
    if acts_like(spec.launch) == "python":
        return max(1, gpus_per_node(spec))
    if acts_like(spec.launch) == "srun" and resources.ntasks is not None:
        return resources.ntasks
    per_node = tasks_per_node(spec) if acts_like(spec.launch) == "srun" else ranks_per_node(spec)
    return resources.nodes * (per_node or 1)
