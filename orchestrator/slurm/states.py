"""Job states in the output of Slurm's commands, and the texts beside them."""

from __future__ import annotations

import contextlib
import re

from orchestrator.jobs import JobState
from orchestrator.slurm import fields

# Long and compact names: job_state_string() and job_state_string_compact() in
# slurm_protocol_defs.c, the same from 20.11 to 26.05.
_COMPACT_STATES = {
    "PD": JobState.PENDING,
    "R": JobState.RUNNING,
    "S": JobState.SUSPENDED,
    "CD": JobState.COMPLETED,
    "CA": JobState.CANCELLED,
    "F": JobState.FAILED,
    "TO": JobState.TIMEOUT,
    "NF": JobState.NODE_FAIL,
    "PR": JobState.PREEMPTED,
    "BF": JobState.BOOT_FAIL,
    "DL": JobState.DEADLINE,
    "OOM": JobState.OUT_OF_MEMORY,
    "CG": JobState.COMPLETING,
    "SO": JobState.STAGE_OUT,
    "CF": JobState.CONFIGURING,
    "RS": JobState.RESIZING,
    "RQ": JobState.REQUEUED,
    "RF": JobState.REQUEUE_FED,
    "RH": JobState.REQUEUE_HOLD,
    "SE": JobState.SPECIAL_EXIT,
    "ST": JobState.STOPPED,
    "RV": JobState.REVOKED,
    "RD": JobState.RESV_DEL_HOLD,
    "SI": JobState.SIGNALING,
}
_STATES = {**_COMPACT_STATES, **{state.value: state for state in _COMPACT_STATES.values()}}
_CANCELLED_BY = re.compile(r"CANCELLED by (\d+)")


def parse_state(raw: str) -> JobState:
    """Parse `COMPLETED`, `CD` or `CANCELLED by 1000`; UNKNOWN for anything else."""
    return _STATES.get((raw.split() or [""])[0].upper(), JobState.UNKNOWN)


def named(word: str) -> JobState:
    """Return the state that a user names, in Slurm's long or short form, or our own; ValueError."""
    with contextlib.suppress(ValueError):
        return JobState(word.upper())
    state = parse_state(word)
    if state is JobState.UNKNOWN:
        raise ValueError(f"{word!r} is not a state; states are {', '.join(JobState)}")
    return state


def cancelled_by(raw: str) -> int | None:
    """Return the user ID in sacct's `CANCELLED by 1000` (0 is root)."""
    match = _CANCELLED_BY.match(raw.strip())
    return int(match[1]) if match else None


def parse_reason(raw: str, state: JobState) -> str | None:
    """Return the reason beside a state, without the former pending reason of a cancelled job.

    DependencyNeverSatisfied stays: with kill_invalid_depend Slurm cancels a job for it.
    """
    reason = fields.parse_text(raw)
    if state is JobState.CANCELLED and reason != "DependencyNeverSatisfied":
        return None
    return reason
