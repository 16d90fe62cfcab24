"""An array task that Slurm no longer lists: cancelled while pending, or unknown."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import jobs, tracking
from orchestrator.jobs import JobState
from tests.unit.tracking import test_decide as cases

TASK: dict[str, Any] = {"job_id": "41_3", "array_job_id": "41", "array_task_id": 3}
WAITS = cases.job(**TASK, raw_job_id=None)
#: Missing in two successful queries over longer than the grace period.
MISSED = cases.job(**TASK, raw_job_id=None, misses=2, missing_since=cases.at(-200))


def state(transition: tracking.Transition) -> object:
    return transition.changes.get("state")


def test_a_task_that_orchestrator_cancelled_ends_at_once() -> None:
    transition = cases.decide(WAITS, cancel_requested=True, array_job_id="41")
    assert state(transition) is JobState.CANCELLED
    assert transition.events[-1].detail == (
        "cancelled by orchestrator while pending: Slurm has no record of this task, and it never "
        "started"
    )
    assert state(cases.decide(WAITS, cancel_requested=True, sacct_queried=False)) is None


def test_a_task_cancelled_by_a_person_ends_after_the_grace() -> None:
    assert state(cases.decide(WAITS, array_job_id="41")) is None
    transition = cases.decide(MISSED, array_job_id="41")
    assert state(transition) is JobState.CANCELLED
    assert transition.events[-1].detail.startswith(
        "missing from 3 results of squeue while pending: "
    )


@pytest.mark.parametrize(
    ("fields", "witnesses"),
    [
        # Nothing of the array is known: Slurm's state may be lost.
        ({}, {}),
        # It has started, so it leaves an exit record.
        ({"started_at": cases.at(-300)}, {"array_job_id": "41"}),
        ({}, {"array_job_id": "41", "owner": "44"}),
        # Its array's ID is another's by now.
        ({}, {"array_job_id": "41", "reused": True}),
    ],
)
def test_job_that_may_have_run_is_lost(fields: dict[str, Any], witnesses: dict[str, Any]) -> None:
    job = cases.job(
        **{**TASK, "raw_job_id": None, "misses": 2, "missing_since": cases.at(-200), **fields}
    )
    assert state(cases.decide(job, **witnesses)) is JobState.LOST


def test_a_row_that_turns_up_later_counts() -> None:
    ended = cases.job(**TASK, raw_job_id=None, state=JobState.CANCELLED)
    late = cases.row(
        JobState.COMPLETED, source="sacct", **TASK | {"raw_job_id": "44"}, started_at=cases.at(1)
    )
    transition = cases.decide(ended, sacct=(late,))
    assert (state(transition), transition.changes["raw_job_id"]) == (JobState.COMPLETED, "44")


def test_an_end_is_settled_after_the_grace_period() -> None:
    ended = cases.job(**TASK, raw_job_id=None, state=JobState.CANCELLED, observed_at=cases.at(0))
    soon = cases.decide(ended, now=60, array_job_id="41")
    later = cases.decide(ended, now=200, array_job_id="41")
    assert (soon.changes, later.changes) == ({}, {"settled": True})


def test_a_task_without_an_id_takes_its_array_s() -> None:
    lost = cases.job(
        job_id=None,
        raw_job_id=None,
        array_task_id=3,
        state=JobState.SUBMIT_UNKNOWN,
        grace_since=cases.at(0),
    )
    transition = cases.decide(lost, array_job_id="41")
    assert (transition.changes["job_id"], transition.changes["array_job_id"]) == ("41_3", "41")
    assert transition.events[0].detail == "job 41_3, because Slurm shows other tasks of its array"
    assert jobs.JobState.NOT_SUBMITTED not in transition.changes.values()


def test_a_task_that_takes_its_array_s_id_is_not_sent_again() -> None:
    lost = cases.job(
        job_id=None,
        raw_job_id=None,
        array_task_id=3,
        state=JobState.SUBMIT_UNKNOWN,
        grace_since=cases.at(0),
        resend_at=cases.at(60),
    )
    transition = cases.decide(lost, array_job_id="41", cancel_requested=True)
    after = cases.after(lost, transition)
    assert (after.state, after.resend_at) == (JobState.CANCELLED, None)
