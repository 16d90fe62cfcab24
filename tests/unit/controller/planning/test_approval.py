"""Plans in the database: each is taken once, together with what it leads to."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import config, errors, plans
from orchestrator.controller.planning import approval
from orchestrator.controller.session import contexts, stores
from tests import builders

NOW = datetime.datetime(2026, 11, 20, 10, tzinfo=datetime.UTC)
EFFECT = plans.Effect(
    actions=("Submit demo",), jobs=1, gpu_hours=4.0, basis={"the spec": "sha256:1"}, submits=True
)


@pytest.fixture
def context(tmp_path: Path, database_url: str) -> Iterator[contexts.Context]:
    with stores.Store(database_url) as store:
        yield builders.make_context(tmp_path, store, now=NOW)


def make_plan(context: contexts.Context, effect: plans.Effect = EFFECT) -> plans.Plan:
    return approval.store(
        context, effect, ["submit", "x"], limits=plans.Budget(), expires_seconds=3600.0
    )


def approved(
    context: contexts.Context, plan: plans.Plan, effect: plans.Effect = EFFECT
) -> approval.Application:
    application = approval.Application(context=context, plan=plan)
    application.approve(lambda: effect)
    return application


def test_a_plan_is_stored_as_it_was_made(context: contexts.Context) -> None:
    plan = make_plan(context)
    assert approval.find(context, plan.token) == plan
    assert plan.expires_at == NOW + datetime.timedelta(hours=1)
    later = builders.with_clock(context, now=plan.expires_at)
    with pytest.raises(errors.ConflictError, match="expired at"):
        approval.find(later, plan.token)
    with pytest.raises(errors.NotFoundError):
        approval.find(context, "0" * 16)


def test_it_is_taken_with_the_first_intent_that_is_stored(context: contexts.Context) -> None:
    plan = make_plan(context)
    application = approved(context, plan)
    # A refresh, and an intent that is refused, leave it as it is.
    with context.store.writing():
        pass
    with pytest.raises(ZeroDivisionError), context.store.writing(durable=True):
        1 / 0  # noqa: B018
    assert approval.find(context, plan.token) == plan
    with context.store.writing(durable=True):
        pass
    with pytest.raises(errors.ConflictError, match="was applied at"):
        approval.find(context, plan.token)
    # Further steps of the command need no approval.
    application.approve(lambda: pytest.fail("the plan was approved"))
    with context.store.writing(durable=True):
        pass
    application.finish()


def test_what_stores_no_intent_takes_it_at_once(context: contexts.Context) -> None:
    plan = make_plan(context)
    approved(context, plan, dataclasses.replace(EFFECT, submits=False))
    with pytest.raises(errors.ConflictError, match="was applied at"):
        approval.find(context, plan.token)


def test_a_command_that_stored_no_intent_takes_it_at_its_end(context: contexts.Context) -> None:
    plan = make_plan(context)
    approved(context, plan).finish()
    with pytest.raises(errors.ConflictError, match="was applied at"):
        approval.find(context, plan.token)


def test_of_two_applications_one_stores_its_intent(
    context: contexts.Context, database_url: str
) -> None:
    plan = make_plan(context)
    approved(context, plan)
    with stores.Store(database_url) as other:
        approved(dataclasses.replace(context, store=other), plan)
        with context.store.writing(durable=True):
            pass
        with pytest.raises(errors.ConflictError, match="was applied at"):
            with other.writing(durable=True):
                pytest.fail("the second intent would be stored")


def test_a_change_is_refused_before_anything_is_stored(context: contexts.Context) -> None:
    plan = make_plan(context)
    with pytest.raises(errors.ConflictError, match="out of date: the spec has changed"):
        approved(context, plan, dataclasses.replace(EFFECT, basis={"the spec": "sha256:2"}))
    with context.store.writing(durable=True):
        pass
    assert approval.find(context, plan.token) == plan


def test_the_budget_of_a_day_counts_what_was_applied_within_24_hours(
    context: contexts.Context,
) -> None:
    limits = approval.budget(config.Agents(max_gpu_hours_per_day=10))
    for _ in range(2):
        approved(context, make_plan(context)).finish()
    with pytest.raises(approval.OverBudgetError, match="with 8 of the last 24 hours"):
        approval.store(context, EFFECT, ["x"], limits=limits, expires_seconds=1.0)
    tomorrow = builders.with_clock(context, now=NOW + datetime.timedelta(hours=24, seconds=1))
    assert approval.store(tomorrow, EFFECT, ["x"], limits=limits, expires_seconds=1.0).jobs == 1


def test_an_option_can_only_lower_the_budget() -> None:
    agents = config.Agents(max_gpu_hours=5)
    assert approval.budget(agents, 100.0).per_plan == 5
    assert approval.budget(agents, 3.0).per_plan == 3.0
    assert approval.budget(config.Agents(), 3.0).per_plan == 3.0
    assert approval.budget(config.Agents()).per_plan is None
