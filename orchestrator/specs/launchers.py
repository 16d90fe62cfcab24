"""The launcher of a spec, and what the launcher `auto` means."""

from __future__ import annotations

import dataclasses
from typing import Literal

from orchestrator import jobs
from orchestrator.specs import programs, ranks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The launcher of a job. python: one process on the first node."""

    launcher: Literal["torchrun", "srun", "python"]
    #: why `auto` means it; "" if the spec names it
    reason: str = ""


def choose(spec: jobs.JobSpec) -> Choice:
    """Return the launcher: torchrun for Python with several ranks, else none."""
    launch, nodes = spec.launch, spec.resources.nodes
    if launch.launcher != "auto":
        return Choice(launcher=launch.launcher)
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
    per_node = ranks.ranks_per_node(spec)
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


def has_ranks(spec: jobs.JobSpec) -> bool:
    """Return whether the spec gives the number of ranks; else the program starts what it wants."""
    launch = spec.launch
    if launch.command is not None or launch.batch_file is not None:
        return False
    if launch.launcher == "auto":
        return programs.is_rank(launch)
    return launch.launcher != "python"
