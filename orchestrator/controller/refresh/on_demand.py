"""Refresh the states of jobs for a command that shows them."""

from __future__ import annotations

from orchestrator.controller.refresh import freshness
from orchestrator.controller.session import contexts


def refresh(context: contexts.Context, wanted: bool | None) -> freshness.Freshness | None:
    """Ask Slurm about live jobs: now (True), never (False), or if the stored state is too old.

    Returns None if Slurm need not be asked.
    """
    if wanted is False:
        return None
    with context.store.reading():
        if wanted is None and freshness.nothing_is_due(context):
            return None
        # It imports everything that talks to Slurm.
        from orchestrator.controller.resubmission import deferred_jobs

        plan = deferred_jobs.make_plan(context, floor_seconds=0 if wanted else None)
    return deferred_jobs.refresh_or_warn(context, plan)
