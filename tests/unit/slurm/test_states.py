"""States and reasons in the output of Slurm."""

import pytest

from orchestrator import jobs
from orchestrator.slurm import states

SLURM_STATES = [
    state
    for state in jobs.JobState
    if state.value not in {"UNKNOWN", "SUBMITTING", "SUBMIT_UNKNOWN", "NOT_SUBMITTED", "LOST"}
]


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        ("COMPLETED", "COMPLETED"),
        ("CD", "COMPLETED"),
        ("OOM", "OUT_OF_MEMORY"),
        ("CANCELLED by 1000", "CANCELLED"),
        ("completing", "COMPLETING"),
        ("C+", "UNKNOWN"),
        ("", "UNKNOWN"),
        ("HIBERNATING", "UNKNOWN"),
        # Only the orchestrator has this state.
        ("LOST", "UNKNOWN"),
    ],
)
def test_states(raw, state):
    assert states.parse_state(raw) == state


def test_every_state_of_slurm_is_parsed():
    assert [states.parse_state(state.value) for state in SLURM_STATES] == SLURM_STATES
    assert len(SLURM_STATES) == 24


def test_cancelled_by():
    assert states.cancelled_by("CANCELLED by 1000") == 1000
    assert states.cancelled_by("CANCELLED") is None


def test_a_cancelled_job_has_no_pending_reason():
    assert states.parse_reason("BeginTime", jobs.JobState.CANCELLED) is None
    assert states.parse_reason("BeginTime", jobs.JobState.PENDING) == "BeginTime"
    never = "DependencyNeverSatisfied"
    assert states.parse_reason(never, jobs.JobState.CANCELLED) == never
