"""Recovery: what happens after a job fails, according to the rules of its `[retry]`. Pure."""

from orchestrator.recovery.decisions import changed, decide
from orchestrator.recovery.records import AWAY, Action, Decision, FailedJob, StoredDecision
