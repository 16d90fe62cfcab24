"""What a command would do, and the limits for it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping

#: Starts a value of Effect.basis that is a hash, which means nothing to people.
DIGEST = "sha256:"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Effect:
    """What a command would do, and what that follows from."""

    #: sentences
    actions: tuple[str, ...]
    #: number of jobs that it submits or changes
    jobs: int
    #: that they use at most; None: unknown, as without a time limit
    gpu_hours: float | None
    #: what it follows from, by name: states of jobs, hashes of scripts, files and settings
    basis: Mapping[str, str]
    #: jobs are submitted: the database refuses to submit them twice
    submits: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A stored plan."""

    token: str
    #: words of the command, with the options that precede it
    argv: tuple[str, ...]
    #: where the command was called
    folder: str
    jobs: int
    gpu_hours: float | None
    #: Effect.basis
    basis: Mapping[str, str]
    created_at: datetime.datetime
    expires_at: datetime.datetime
    #: None: it was not applied
    applied_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of GPU-hours, each with where it comes from. None: no limit."""

    per_plan: float | None = None
    per_day: float | None = None


def most_hours(gpu_hours: float | None) -> str:
    """Return GPU-hours of Effect or Plan as words."""
    if gpu_hours is None:
        return "an unknown number of GPU-hours"
    return f"at most {gpu_hours:.4g} GPU-hours"


def refusal(gpu_hours: float | None, budget: Budget, used: float) -> str:
    """Return why GPU-hours exceed a budget, or "".

    gpu_hours: of the plan; None: unknown. used: by the plans of the last 24 hours.
    """
    limits = [limit for limit in (budget.per_plan, budget.per_day) if limit is not None]
    if not limits:
        return ""
    if gpu_hours is None:
        return (
            "the GPU-hours of a job are not known, so they cannot be limited: it has no time "
            "limit (--time-limit, job.time_limit), is a batch file, requests GPUs in [sbatch], has "
            "exclusive nodes with an unknown number of GPUs, or retry.changes that enlarge it"
        )
    if budget.per_plan is not None and gpu_hours > budget.per_plan:
        return f"{most_hours(gpu_hours)} are more than the limit of {budget.per_plan:.4g}"
    if budget.per_day is not None and gpu_hours and used + gpu_hours > budget.per_day:
        return (
            f"{most_hours(gpu_hours)}, with {used:.4g} of the last 24 hours, are more "
            f"than agents.max_gpu_hours_per_day = {budget.per_day:.4g}"
        )
    return ""
