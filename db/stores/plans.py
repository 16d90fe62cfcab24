"""Plans, each of which is applied at most once."""

from __future__ import annotations

import dataclasses
import datetime

import sqlalchemy as sa

from db.stores import base
from db.tables.service import PLANS
from orchestrator.plans import records

_PLAN = PLANS.c


class PlanStore(base.Store):
    def add(self, plan: records.Plan) -> None:
        self._insert(PLANS, {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)})

    def get(self, token: str) -> records.Plan | None:
        return self._first(
            records.Plan, base.select(PLANS, records.Plan).where(_PLAN.token == token)
        )

    def take(self, token: str, now: datetime.datetime) -> bool:
        """Mark a plan as applied; return False if it is already."""
        fields = {"applied_at": now}
        return self._update(PLANS, fields, _PLAN.token == token, _PLAN.applied_at.is_(None)) == 1

    def gpu_hours_since(self, moment: datetime.datetime) -> float:
        """Return the GPU-hours of the plans that were applied since a moment."""
        total = sa.func.sum(_PLAN.gpu_hours)
        return self._scalar(float, sa.select(total).where(_PLAN.applied_at >= moment)) or 0.0
