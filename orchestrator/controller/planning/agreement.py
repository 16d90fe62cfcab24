"""The points at which commands have checked everything and have changed nothing.

What a command would do is worked out only for a plan; few commands are planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator import graphs, jobs, plans
    from orchestrator.controller.session import contexts
    from orchestrator.controller.submission import job_scripts
    from orchestrator.controller.sweeps import plan


def on_request(context: contexts.Context, request: job_scripts.Request, script: str) -> None:
    """Agree on submitting a job or a job array."""

    def effect() -> plans.Effect:
        from orchestrator.controller.planning import effects

        return effects.of_request(context, request, script)

    context.guard.agree(effect)


def on_points(name: str, prepared: plan.Prepared, resent: Sequence[jobs.Job] = ()) -> None:
    """Agree on submitting points of a sweep; resent: jobs of others that Slurm never had."""

    def effect() -> plans.Effect:
        from orchestrator.controller.planning import effects

        return effects.of_points(prepared.context, name, prepared, resent)

    prepared.context.guard.agree(effect)


def on_graph(
    context: contexts.Context,
    name: str,
    nodes: Sequence[tuple[graphs.StoredNode, Mapping[str, Any]]],
    of_nodes: Mapping[str, Sequence[jobs.JobSpec]],
) -> None:
    """Agree on submitting a graph; of_nodes: the specs of each node's jobs."""

    def effect() -> plans.Effect:
        from orchestrator.controller.planning import effects

        return effects.of_graph(context, name, nodes, of_nodes)

    context.guard.agree(effect)


def on_change(
    context: contexts.Context,
    verb: str,
    selected: Callable[[], Sequence[jobs.Job]],
    *,
    objection: Callable[[jobs.Job], str] = lambda job: "",
    runs: bool = False,
    submits: bool = False,
    before: str = "",
) -> None:
    """Agree on a change of jobs.

    verb: "Cancel". objection: why a job cannot be changed; "": it can. runs: the jobs may use
    resources afterwards. submits: they are submitted again. before: what is done first, as a
    sentence.
    """

    def effect() -> plans.Effect:
        from orchestrator.controller.planning import effects

        return effects.of_change(
            context,
            verb,
            selected(),
            runs=runs,
            submits=submits,
            objection=objection,
            before=before,
        )

    context.guard.agree(effect)
