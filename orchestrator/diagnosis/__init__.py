"""Why a job waits, why it failed, and what to do about it. Pure."""

from __future__ import annotations

from orchestrator.diagnosis.causes import Acts, Cause, CauseKind, Retry
from orchestrator.diagnosis.exits import LAUNCH_FAILED_SIGNAL, explain_exit
from orchestrator.diagnosis.explaining import diagnose
from orchestrator.diagnosis.kinds import kind_of
from orchestrator.diagnosis.reading import Reader
from orchestrator.diagnosis.records import (
    Canceller,
    Evidence,
    Explanation,
    Facts,
    Finding,
    Frame,
    Level,
    Source,
    Traceback,
)
from orchestrator.diagnosis.rules import Rules, load_shipped
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
    "Canceller",
    "Cause",
    "CauseKind",
    "Evidence",
    "Explanation",
    "Facts",
    "Finding",
    "Frame",
    "Level",
    "Reader",
    "Retry",
    "Rules",
    "Source",
    "Traceback",
    "Waiting",
    "diagnose",
    "explain_exit",
    "explain_reason",
    "explain_stuck",
    "is_held",
    "kind_of",
    "load_shipped",
    "waiting",
]
