"""Why a job waits, why it failed, and what to do about it. Pure."""

from __future__ import annotations

import typing

from orchestrator import lazily

if typing.TYPE_CHECKING:
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
    from orchestrator.diagnosis.rules import Rules, load_rules, load_shipped
    from orchestrator.diagnosis.waiting import (
        Waiting,
        explain_reason,
        explain_stuck,
        is_held,
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
    "load_rules",
    "load_shipped",
]

__getattr__ = lazily.names_of(
    __name__,
    {
        "causes": ["Acts", "Cause", "CauseKind", "Retry"],
        "exits": ["LAUNCH_FAILED_SIGNAL", "explain_exit"],
        "explaining": ["diagnose"],
        "kinds": ["kind_of"],
        "reading": ["Reader"],
        "records": [
            "Canceller",
            "Evidence",
            "Explanation",
            "Facts",
            "Finding",
            "Frame",
            "Level",
            "Source",
            "Traceback",
        ],
        "rules": ["Rules", "load_rules", "load_shipped"],
        "waiting": ["Waiting", "explain_reason", "explain_stuck", "is_held"],
    },
)
