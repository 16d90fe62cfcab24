"""The results of submitting jobs and sweeps, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator import jobs
from orchestrator.jobs import naming
from orchestrator.rows import row_values
from orchestrator.text import nouns

if TYPE_CHECKING:
    from orchestrator.controller.sweeps import submit_points


def of_job(tasks: Sequence[jobs.Job]) -> str:
    """Return the result of submitting a job or a job array."""
    first = tasks[0]
    if first.is_deferred and first.resend_at is not None:
        at = row_values.time_of_day(first.resend_at)
        return f"{naming.rows_of(tasks)} {first.reason}; next try at {at}"
    return naming.submitted(tasks)


def of_sweep(result: submit_points.Submitted) -> str:
    """Return the result of submitting points of a sweep."""
    name = f"sweep {result.sweep.name} (@{result.sweep.row})"
    if not result.submitted and not result.deferred:
        return f"Nothing left to submit of {name}"
    deferred = f", {result.deferred} deferred" if result.deferred else ""
    return f"Submitted {nouns.count(result.submitted, 'point')} of {name}{deferred}"
