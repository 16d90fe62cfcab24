"""Make a plan of a command, and let a command do what a plan says, once."""

from __future__ import annotations

import dataclasses
import datetime
import secrets
from collections.abc import Callable, Sequence

from db import unit_of_work
from orchestrator import config, errors, plans
from orchestrator.controller.session import contexts

_TOKEN_BYTES = 8
_DAY = datetime.timedelta(days=1)


class OverBudgetError(errors.ConflictError):
    """A plan may use more GPU-hours than allowed."""


class Planned(Exception):
    """A command has come to the point at which it would change something."""

    def __init__(self, effect: plans.Effect) -> None:
        super().__init__()
        self.effect = effect


def stop(effect: Callable[[], plans.Effect]) -> None:
    """End the command of a plan; raises Planned. For contexts.Guard."""
    raise Planned(effect())


def budget(agents: config.Agents, given_gpu_hours: float | None = None) -> plans.Budget:
    """Return the configured budget, which the option of a command can only lower."""
    limits = [each for each in (agents.max_gpu_hours, given_gpu_hours) if each is not None]
    return plans.Budget(per_plan=min(limits, default=None), per_day=agents.max_gpu_hours_per_day)


def store(
    context: contexts.Context,
    effect: plans.Effect,
    argv: Sequence[str],
    *,
    limits: plans.Budget,
    expires_seconds: float,
) -> plans.Plan:
    """Store a plan with a new token. Raises OverBudgetError."""
    now = context.clock.now()
    plan = plans.Plan(
        token=secrets.token_hex(_TOKEN_BYTES),
        argv=tuple(argv),
        folder=str(context.folder),
        jobs=effect.jobs,
        gpu_hours=effect.gpu_hours,
        basis=effect.basis,
        created_at=now,
        expires_at=now + datetime.timedelta(seconds=expires_seconds),
    )
    with context.store.writing() as work:
        _refuse_expensive(work, effect, limits, now)
        work.plans.add(plan)
    return plan


def find(context: contexts.Context, token: str) -> plans.Plan:
    """Return a plan that may be applied now. Raises NotFoundError or ConflictError."""
    with context.store.reading() as work:
        plan = work.plans.get(token)
    if plan is None:
        raise errors.NotFoundError(
            f"there is no plan {token!r}: `orchestrator plan COMMAND` makes one"
        )
    if plan.applied_at is not None:
        raise _not_taken(plan, token)
    if context.clock.now() >= plan.expires_at:
        at = plan.expires_at.astimezone().isoformat(timespec="seconds")
        raise errors.ConflictError(f"plan {token} expired at {at}. {_AGAIN}")
    return plan


_AGAIN = "Nothing was done. Make a new plan: `orchestrator plan COMMAND`"


def _not_taken(plan: plans.Plan | None, token: str) -> errors.ConflictError:
    if plan is None or plan.applied_at is None:
        return errors.ConflictError(f"its command uses a database without plan {token}. {_AGAIN}")
    at = plan.applied_at.astimezone().isoformat(timespec="seconds")
    return errors.ConflictError(
        f"plan {token} was applied at {at}, and a plan is applied only once. "
        "`orchestrator status` shows the jobs"
    )


def _refuse_expensive(
    work: unit_of_work.UnitOfWork,
    effect: plans.Effect,
    limits: plans.Budget,
    now: datetime.datetime,
) -> None:
    used = work.plans.gpu_hours_since(now - _DAY)
    if why := plans.refusal(effect.gpu_hours, limits, used):
        raise OverBudgetError(f"over the budget: {why}. Nothing was done.")


@dataclasses.dataclass(kw_only=True)
class Application:
    """A command that does what a plan says. Its `approve` is for contexts.Guard."""

    context: contexts.Context
    plan: plans.Plan
    is_approved: bool = False

    def approve(self, effect: Callable[[], plans.Effect]) -> None:
        """Compare what the command would do with the plan, and take the plan.

        A plan of a submission is taken in the transaction that stores the intent, so that a killed
        command has either done nothing, or what refreshes complete. Raises ConflictError.
        """
        if self.is_approved:
            return
        actual = effect()
        if changed := plans.changes(self.plan, actual):
            raise errors.ConflictError(
                f"plan {self.plan.token} is out of date: {'; '.join(changed)}. {_AGAIN}"
            )
        self.is_approved = True

        def take(work: unit_of_work.UnitOfWork) -> None:
            now = self.context.clock.now()
            # What follows from the options of the plan was checked when it was made.
            _refuse_expensive(work, actual, budget(self.context.configuration.agents), now)
            if not work.plans.take(self.plan.token, now):
                raise _not_taken(work.plans.get(self.plan.token), self.plan.token)

        if actual.submits:
            self.context.store.join_next_durable(take)
        else:
            with self.context.store.writing(durable=True) as work:
                take(work)

    def finish(self) -> None:
        """Take the plan if the command has ended without storing an intent."""
        if not self.context.store.has_joined:
            with self.context.store.writing(durable=True):
                pass
