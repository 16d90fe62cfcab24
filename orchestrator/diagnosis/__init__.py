"""Why a job waits, why it failed, and what to do about it. Pure."""

from __future__ import annotations

from orchestrator.diagnosis.causes import Acts, Cause, CauseKind, Retry
from orchestrator.diagnosis.exits import LAUNCH_FAILED_SIGNAL, explain_exit
from orchestrator.diagnosis.kinds import kind_of
from orchestrator.diagnosis.records import (
    Evidence,
    Explanation,
    Facts,
    Finding,
    Frame,
    Source,
    Traceback,
)
from orchestrator.diagnosis.waiting import (
    Waiting,
    explain_reason,
    explain_stuck,
    is_held,
    waiting,
)

__all__ = [
    "LAUNCH_FAILED_SIGNAL",
    "Acts",
    "Cause",
    "CauseKind",
    "Evidence",
    "Explanation",
    "Facts",
    "Finding",
    "Frame",
    "Retry",
    "Source",
    "Traceback",
    "Waiting",
    "explain_exit",
    "explain_reason",
    "explain_stuck",
    "is_held",
    "kind_of",
    "waiting",
]
