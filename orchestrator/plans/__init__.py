"""Plans: what a command would do, so that exactly this can be done later. Pure."""

from orchestrator.plans.changes import changes
from orchestrator.plans.records import Budget, Effect, Plan, most_hours, refusal
