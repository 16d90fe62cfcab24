"""Cancel and requeue, as the commands do. This module imports everything that talks to Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from orchestrator import jobs
from orchestrator.api import actions
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.text import escaping, nouns

Action: TypeAlias = Literal["cancel", "requeue"]


def targets(action: Action, selected: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return the jobs that the action may change."""
    if action == "cancel":
        return [job for job in selected if not job.is_over]
    return list(selected)


def question(action: Action, selected: Sequence[jobs.Job]) -> tuple[str, list[str]]:
    """Return the question before an action, and lines that name all its jobs."""
    lines = list(map(_named, naming.by_submission(selected)))
    return f"{action.capitalize()} {nouns.count(len(selected), 'job')}?", lines


def _named(tasks: Sequence[jobs.Job]) -> str:
    states = ", ".join(sorted({str(job.state) for job in tasks}))
    return escaping.one_line(f"{naming.names_of(tasks)}  {tasks[0].name}  {states}")


def carry_out(context: contexts.Context, action: Action, selected: Sequence[jobs.Job]) -> list[str]:
    """Act, wait until Slurm shows it, and return sentences about it. Raises OrchestratorError."""
    report = actions.carry_out(context, action, selected)
    return [*report.problems, *report.lines]
