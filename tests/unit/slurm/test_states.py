"""Raw states -> JobState."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import jobs
from orchestrator.slurm import states

SLURMS = [
    state
    for state in jobs.JobState
    if state.value not in {"UNKNOWN", "SUBMITTING", "SUBMIT_UNKNOWN", "NOT_SUBMITTED", "LOST"}
]


@pytest.mark.parametrize(
    ("raw", "shown", "terminal"),
    [
        ("COMPLETED", "COMPLETED", True),
        ("CD", "COMPLETED", True),
        ("OOM", "OUT_OF_MEMORY", True),
        ("CANCELLED by 1000", "CANCELLED", True),
        ("CANCELLED+", "CANCELLED", True),
        ("OUT_OF_ME+", "OUT_OF_MEMORY", True),
        ("cancelled,completing", "COMPLETING", False),
        (["CANCELLED", "COMPLETING"], "COMPLETING", False),
        ("COMPLETING", "COMPLETING", False),
        ("FAILED,REQUEUED", "REQUEUED", False),
        ("PENDING,SPECIAL_EXIT", "SPECIAL_EXIT", False),
        ("RUNNING,CONFIGURING", "CONFIGURING", False),
        ("RUNNING,POWER_UP_NODE", "RUNNING", False),
        ("PENDING,LAUNCH_FAILED,REQUEUE_HOLD", "REQUEUE_HOLD", False),
        ("REVOKED", "REVOKED", True),
        ("PREEMPTED", "PREEMPTED", True),
        # C+ may be COMPLETED, CANCELLED, COMPLETING or CONFIGURING.
        ("C+", "UNKNOWN", False),
        ("+", "UNKNOWN", False),
        ("?", "UNKNOWN", False),
        ("", "UNKNOWN", False),
        ("HIBERNATING", "UNKNOWN", False),
        ("COMPLETED,HIBERNATING", "UNKNOWN", False),
        ("COMPLETED,FAILED", "UNKNOWN", False),
        # Ours are no words of Slurm's.
        ("LOST", "UNKNOWN", False),
    ],
)
def test_forms(raw, shown, terminal):
    reading = states.parse_parts(raw)
    assert (reading.shown, reading.terminal) == (shown, terminal)
    assert states.parse_state(raw) == shown


def test_every_state_of_slurm_reads_as_itself():
    assert [states.parse_state(state.value) for state in SLURMS] == SLURMS
    assert len(SLURMS) == 24


def test_cancelled_by():
    assert states.cancelled_by("CANCELLED by 1000") == 1000
    assert states.cancelled_by("CANCELLED") is None


@given(st.text() | st.lists(st.text()))
def test_never_raises_and_terminal_is_a_known_end(raw):
    reading = states.parse_parts(raw)
    assert not reading.terminal or reading.shown in jobs.TERMINAL


def test_what_a_cancelled_job_waited_for_is_no_reason():
    assert states.parse_reason("BeginTime", jobs.JobState.CANCELLED) is None
    assert states.parse_reason("BeginTime", jobs.JobState.PENDING) == "BeginTime"
    never = "DependencyNeverSatisfied"
    assert states.parse_reason(never, jobs.JobState.CANCELLED) == never
