"""Budgets of plans, and what has changed since a plan was made."""

from __future__ import annotations

import datetime

import pytest

from orchestrator import plans

UNKNOWN = (
    "the GPU-hours of a job are not known, so they cannot be limited: it has no time limit "
    "(--time-limit, job.time_limit), is a batch file, requests GPUs in [sbatch], has exclusive "
    "nodes with an unknown number of GPUs, or retry.changes that enlarge it"
)


@pytest.mark.parametrize(
    ("hours", "per_plan", "per_day", "used", "refusal"),
    [
        (8.0, None, None, 1e9, ""),
        (None, None, None, 0.0, ""),
        (8.0, 8.0, None, 0.0, ""),
        (8.5, 8.0, None, 0.0, "at most 8.5 GPU-hours are more than the limit of 8"),
        (8.0, None, 20.0, 12.0, ""),
        (
            *(8.0, None, 20.0, 12.5),
            "at most 8 GPU-hours, with 12.5 of the last 24 hours, are more than "
            "agents.max_gpu_hours_per_day = 20",
        ),
        (0.0, 0.0, 20.0, 25.0, ""),
        (None, 8.0, None, 0.0, UNKNOWN),
        (None, None, 20.0, 0.0, UNKNOWN),
    ],
)
def test_budgets(
    hours: float | None, per_plan: float | None, per_day: float | None, used: float, refusal: str
) -> None:
    budget = plans.Budget(per_plan=per_plan, per_day=per_day)
    assert plans.refusal(hours, budget, used) == refusal


def plan(basis: dict[str, str], gpu_hours: float | None) -> plans.Plan:
    at = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
    return plans.Plan(
        token="0" * 16,
        argv=("cancel", "41"),
        folder="/",
        jobs=1,
        gpu_hours=gpu_hours,
        basis=basis,
        created_at=at,
        expires_at=at,
    )


def effect(basis: dict[str, str], gpu_hours: float | None) -> plans.Effect:
    return plans.Effect(actions=(), jobs=1, gpu_hours=gpu_hours, basis=basis, submits=False)


def test_changes() -> None:
    before = {"41 (@1)": "RUNNING", "the spec": "sha256:1", "42 (@2)": "PENDING", "same": "x"}
    now = {"41 (@1)": "COMPLETED", "the spec": "sha256:2", "43 (@3)": "PENDING", "same": "x"}
    assert plans.changes(plan(before, 4.0), effect(before, 4.0)) == []
    assert plans.changes(plan({}, 4.0), effect({}, None)) == [
        "it was to use at most 4 GPU-hours, and would use an unknown number of GPU-hours"
    ]
    assert plans.changes(plan(before, 4.0), effect(now, None)) == [
        "41 (@1) was RUNNING and is COMPLETED",
        "the spec has changed",
        "42 (@2) is not part of it any more",
        "43 (@3) was not part of the plan",
    ]
