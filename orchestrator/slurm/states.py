"""Every raw form in which Slurm prints a job state -> jobs.JobState."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from orchestrator.jobs import TERMINAL, JobState
from orchestrator.slurm import fields

# Long and compact names: job_state_string() and job_state_string_compact() in
# slurm_protocol_defs.c, the same from 20.11 to 26.05. OOM is the one code with three letters.
_COMPACT = {
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
_STATES = {**_COMPACT, **{state.value: state for state in _COMPACT.values()}}
#: In the order in which Slurm's own tools look for the one word they print.
FLAGS = (
    JobState.COMPLETING,
    JobState.STAGE_OUT,
    JobState.CONFIGURING,
    JobState.RESIZING,
    JobState.REQUEUED,
    JobState.REQUEUE_FED,
    JobState.REQUEUE_HOLD,
    JobState.SPECIAL_EXIT,
    JobState.STOPPED,
    JobState.REVOKED,
    JobState.RESV_DEL_HOLD,
    JobState.SIGNALING,
)
# Only JSON and job_state_string_complete() show these, beside a base state that says enough.
_SILENT = frozenset(
    {
        "LAUNCH_FAILED",
        "UPDATE_DB",
        "RECONFIG_FAIL",
        "POWER_UP_NODE",
        "GETENV_FAILED",
        "EXPEDITING",
    }
)
# REVOKED is a flag as well, and two of the terminal states are ours alone.
_ENDED = TERMINAL - {JobState.REVOKED, JobState.NOT_SUBMITTED, JobState.LOST}
_REOPENING = frozenset(FLAGS) - {JobState.REVOKED}
_CANCELLED_BY = re.compile(r"CANCELLED by (\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateReading:
    """A raw state taken apart."""

    #: what Slurm's tools would print: the first flag, else the base state
    shown: JobState
    #: none where only a flag was printed
    base: JobState | None
    flags: frozenset[JobState]

    @property
    def terminal(self) -> bool:
        """Whether nothing more happens unless a requeue opens a new attempt."""
        if JobState.REVOKED in self.flags:
            return True
        return self.base in _ENDED and not self.flags & _REOPENING


def read_state(raw: str | Iterable[str]) -> StateReading:
    """Take a state apart: long, compact, `CANCELLED by 1000`, `CANCELLED+`, joined or a list."""
    words = raw.split(",") if isinstance(raw, str) else list(raw)
    found = [state for state in map(_word, words) if state is not None]
    flags = frozenset(found).intersection(FLAGS)
    bases = [state for state in found if state not in flags]
    if not found or JobState.UNKNOWN in found or len(set(bases)) > 1:
        return StateReading(shown=JobState.UNKNOWN, base=None, flags=frozenset())
    base = bases[0] if bases else None
    shown = next((flag for flag in FLAGS if flag in flags), base)
    return StateReading(shown=shown or JobState.UNKNOWN, base=base, flags=flags)


def parse_state(raw: str | Iterable[str]) -> JobState:
    """Return the state to show; UNKNOWN for what the table lacks."""
    return read_state(raw).shown


def cancelled_by(raw: str) -> int | None:
    """Return the user ID in `CANCELLED by 1000`, sacct's form (0 is an administrator)."""
    found = _CANCELLED_BY.match(raw.strip())
    return int(found[1]) if found else None


def _word(raw: str) -> JobState | None:
    words = raw.split()
    word = words[0].upper() if words else ""
    if word in _SILENT:
        return None
    if word.endswith("+"):
        # A column of fixed width cuts long words: `CANCELLED+`, `OUT_OF_ME+`.
        cut = word.rstrip("+")
        fits = {state for name, state in _STATES.items() if len(name) > 3 and name.startswith(cut)}
        return fits.pop() if cut and len(fits) == 1 else JobState.UNKNOWN
    return _STATES.get(word, JobState.UNKNOWN)


def parse_reason(raw: str, state: JobState) -> str | None:
    """Read the reason beside a state, less what a cancelled job once waited for (24.11).

    DependencyNeverSatisfied stays: with kill_invalid_depend Slurm itself cancels a job for it.
    """
    reason = fields.parse_text(raw)
    if state is JobState.CANCELLED and reason != "DependencyNeverSatisfied":
        return None
    return reason
