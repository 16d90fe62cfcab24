"""Actions on jobs by their names. This module imports everything that talks to Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from orchestrator import jobs
from orchestrator.controller.actions import cancel, changes, confirmed
from orchestrator.controller.session import contexts
from orchestrator.rows import action_reports

Action: TypeAlias = Literal["cancel", "hold", "release", "requeue", "requeue-hold"]


def carry_out(
    context: contexts.Context,
    action: Action,
    selected: Sequence[jobs.Job],
    confirm_seconds: float = confirmed.CONFIRM_SECONDS,
) -> action_reports.Report:
    """Act, wait until Slurm shows it, at most `confirm_seconds`, and report about it."""
    if action == "cancel":
        cancelled = cancel.cancel(context, selected, confirm_seconds=confirm_seconds)
        return action_reports.of_cancellation(cancelled)
    if action == "hold":
        outcomes = changes.hold(context, selected, confirm_seconds=confirm_seconds)
    elif action == "release":
        outcomes = changes.release(context, selected, confirm_seconds=confirm_seconds)
    else:
        outcomes = changes.requeue(
            context, selected, hold=action == "requeue-hold", confirm_seconds=confirm_seconds
        )
    already = action_reports.ALREADY[action.removesuffix("-hold")]
    return action_reports.of_changes(outcomes, already=already)
