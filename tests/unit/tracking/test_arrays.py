"""A task of an array that Slurm no longer names: cancelled while it waited, or not to be said."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import jobs, tracking
from orchestrator.jobs import JobState
from tests.unit.tracking import test_judge as judging

TASK: dict[str, Any] = {"job_id": "41_3", "array_job_id": "41", "array_task_id": 3}
WAITS = judging.job(**TASK, raw_job_id=None)
#: Missed by two good answers over longer than the grace.
MISSED = judging.job(**TASK, raw_job_id=None, misses=2, missing_since=judging.at(-200))


def state(verdict: tracking.Verdict) -> object:
    return verdict.changes.get("state")


def test_what_we_cancelled_has_ended_at_once() -> None:
    verdict = judging.judge(WAITS, cancel_asked=True, array_job_id="41")
    assert state(verdict) is JobState.CANCELLED
    assert verdict.events[-1].detail == (
        "cancelled by us while it waited: Slurm knows other tasks of array 41 and nothing of this "
        "one, and the task never began"
    )
    assert state(judging.judge(WAITS, cancel_asked=True, sacct_asked=False)) is None


def test_what_others_cancelled_takes_as_long_as_lost() -> None:
    assert state(judging.judge(WAITS, array_job_id="41")) is None
    verdict = judging.judge(MISSED, array_job_id="41")
    assert state(verdict) is JobState.CANCELLED
    assert verdict.events[-1].detail.startswith("gone from 3 answers of squeue while it waited: ")


@pytest.mark.parametrize(
    ("fields", "witnesses"),
    [
        # Nothing of the array is known: Slurm's state may be lost.
        ({}, {}),
        # It has begun, so it leaves a record.
        ({"started_at": judging.at(-300)}, {"array_job_id": "41"}),
        ({}, {"array_job_id": "41", "owner": "44"}),
        # Its array's ID is another's by now.
        ({}, {"array_job_id": "41", "reused": True}),
    ],
)
def test_what_may_have_run_is_lost(fields: dict[str, Any], witnesses: dict[str, Any]) -> None:
    job = judging.job(
        **{**TASK, "raw_job_id": None, "misses": 2, "missing_since": judging.at(-200), **fields}
    )
    assert state(judging.judge(job, **witnesses)) is JobState.LOST


def test_a_row_that_turns_up_later_counts() -> None:
    ended = judging.job(**TASK, raw_job_id=None, state=JobState.CANCELLED)
    late = judging.row(
        JobState.COMPLETED, source="sacct", **TASK | {"raw_job_id": "44"}, started_at=judging.at(1)
    )
    verdict = judging.judge(ended, sacct=(late,))
    assert (state(verdict), verdict.changes["raw_job_id"]) == (JobState.COMPLETED, "44")


def test_it_is_settled_when_no_row_has_come_over_a_grace() -> None:
    ended = judging.job(
        **TASK, raw_job_id=None, state=JobState.CANCELLED, observed_at=judging.at(0)
    )
    soon = judging.judge(ended, now=60, array_job_id="41")
    later = judging.judge(ended, now=200, array_job_id="41")
    assert (soon.changes, later.changes) == ({}, {"settled": True})


def test_a_task_without_an_id_takes_its_array_s() -> None:
    lost = judging.job(
        job_id=None,
        raw_job_id=None,
        array_task_id=3,
        state=JobState.SUBMIT_UNKNOWN,
        grace_since=judging.at(0),
    )
    verdict = judging.judge(lost, array_job_id="41")
    assert (verdict.changes["job_id"], verdict.changes["array_job_id"]) == ("41_3", "41")
    assert verdict.events[0].detail == "41_3, as others of its array"
    assert jobs.JobState.NOT_SUBMITTED not in verdict.changes.values()


def test_a_task_that_takes_its_array_s_id_is_not_sent_again() -> None:
    lost = judging.job(
        job_id=None,
        raw_job_id=None,
        array_task_id=3,
        state=JobState.SUBMIT_UNKNOWN,
        grace_since=judging.at(0),
        resend_at=judging.at(60),
    )
    verdict = judging.judge(lost, array_job_id="41", cancel_asked=True)
    after = judging.after(lost, verdict)
    assert (after.state, after.resend_at) == (JobState.CANCELLED, None)
