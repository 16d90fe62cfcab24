"""Ranks that waited in vain: which ones, in which call, and which rank they waited for. Pure.

Source: ProcessGroupNCCL.cpp, "Watchdog caught collective operation timeout:
WorkNCCL(SeqNum=.., OpType=.., ...)", a line of each rank whose call timed out (torch 1.12 to 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.records import Finding, Level

_CALL = re.compile(r"SeqNum=(?P<number>\d{1,18}), OpType=(?P<call>\w{1,60})")
_CAUSES = (Cause.NCCL_TIMEOUT, Cause.GLOO_TIMEOUT)


def told(findings: Sequence[Finding]) -> Mapping[str, object]:
    """Return what is known of the ranks that waited: which, and in which calls."""
    waited = {
        one.rank: None
        for one in findings
        if one.cause in _CAUSES and one.level is Level.TIMEOUT and one.rank is not None
    }
    if not waited:
        return {}
    details: dict[str, object] = {"ranks_that_waited": sorted(waited)}
    missing = sorted(set(range(max(waited) + 1)) - set(waited))
    if missing and len(waited) > 1:
        details["ranks_that_did_not"] = missing
    calls = _calls(findings)
    if len({call for _, call in calls.values()}) > 1:
        details["different_calls"] = {
            f"rank {rank}": f"{call} (number {number})"
            for rank, (number, call) in sorted(calls.items())
        }
    elif len({number for number, _ in calls.values()}) > 1:
        details["different_numbers"] = {
            f"rank {rank}": number for rank, (number, _) in sorted(calls.items())
        }
    return details


def suspect(findings: Sequence[Finding]) -> int | None:
    """Return the rank that is behind: its call has the lowest number; none where all are even."""
    calls = _calls(findings)
    numbers = sorted((number, rank) for rank, (number, _) in calls.items())
    if len(numbers) > 1 and numbers[0][0] < numbers[1][0]:
        return numbers[0][1]
    return None


def _calls(findings: Sequence[Finding]) -> dict[int, tuple[int, str]]:
    """Return of each rank the first call that timed out: its number and its kind."""
    calls: dict[int, tuple[int, str]] = {}
    for one in findings:
        found = _CALL.search(one.evidence.text)
        if one.level is Level.TIMEOUT and one.rank is not None and found:
            number = int(found["number"])
            if one.rank not in calls or number < calls[one.rank][0]:
                calls[one.rank] = (number, found["call"])
    return calls
