"""Job states in every form that Slurm prints -> jobs.JobState."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from orchestrator.jobs import TERMINAL, JobState
from orchestrator.slurm import fields

# Long and compact names: job_state_string() and job_state_string_compact() in
# slurm_protocol_defs.c, the same from 20.11 to 26.05.
_BASE_STATES = {
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
}
#: In the order in which Slurm's tools choose the one state that they print.
_FLAGS = {
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
_COMPACT = {**_BASE_STATES, **_FLAGS}
_STATES = {**_COMPACT, **{state.value: state for state in _COMPACT.values()}}
# Only JSON and job_state_string_complete() show these, beside a base state that says enough.
_IGNORED = frozenset(
    {
        *("LAUNCH_FAILED", "UPDATE_DB", "RECONFIG_FAIL", "POWER_UP_NODE", "GETENV_FAILED"),
        "EXPEDITING",
    }
)
# REVOKED is a flag as well. Two of the terminal states are not Slurm's.
_ENDED = TERMINAL - {JobState.REVOKED, JobState.NOT_SUBMITTED, JobState.LOST}
_REOPENING = frozenset(_FLAGS.values()) - {JobState.REVOKED}
_CANCELLED_BY = re.compile(r"CANCELLED by (\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsedState:
    """The parts of a state."""

    #: what Slurm's tools would print: the first flag, else the base state
    shown: JobState
    #: None if only a flag was printed
    base: JobState | None
    flags: frozenset[JobState]

    @property
    def terminal(self) -> bool:
        """Whether the job has ended; a requeue may start a new attempt."""
        if JobState.REVOKED in self.flags:
            return True
        return self.base in _ENDED and not self.flags & _REOPENING


def parse_parts(raw: str | Iterable[str]) -> ParsedState:
    """Parse a state: long, compact, `CANCELLED by 1000`, `CANCELLED+`, comma-joined or a list."""
    words = raw.split(",") if isinstance(raw, str) else list(raw)
    states = [state for state in map(_parse_word, words) if state is not None]
    flags = frozenset(states).intersection(_FLAGS.values())
    bases = set(states) - flags
    if not states or JobState.UNKNOWN in states or len(bases) > 1:
        return ParsedState(shown=JobState.UNKNOWN, base=None, flags=frozenset())
    base = next(iter(bases), None)
    shown = next((flag for flag in _FLAGS.values() if flag in flags), base)
    return ParsedState(shown=shown or JobState.UNKNOWN, base=base, flags=flags)


def parse_state(raw: str | Iterable[str]) -> JobState:
    """Return the state to show; UNKNOWN for one that is not in the table."""
    return parse_parts(raw).shown


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


def _parse_word(raw: str) -> JobState | None:
    word = (raw.split() or [""])[0].upper()
    if word in _IGNORED:
        return None
    if word.endswith("+"):
        # A column of fixed width cuts long words: `CANCELLED+`, `OUT_OF_ME+`.
        prefix = word.rstrip("+")
        matches = {state for name, state in _STATES.items() if prefix and name.startswith(prefix)}
        return matches.pop() if len(matches) == 1 else JobState.UNKNOWN
    return _STATES.get(word, JobState.UNKNOWN)
