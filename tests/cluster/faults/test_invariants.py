"""The check of the invariants detects each violation; needs no Slurm."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.cluster import faults
from tests.cluster.faults import invariants

TOKEN = "ab12cd34ef56"
RECORD = invariants.Record(job_id="7", name=f"job.{TOKEN}", state="COMPLETED")


def job(state: str = "COMPLETED", *states: str, job_id: str | None = "7") -> dict[str, Any]:
    """A job as `show --json` has it, whose history leads through the states to the last one."""
    path = [*states, state]
    events = [
        {"state": now, "attempt": 0, "detail": f"{before} -> {now}" if before else "intent stored"}
        for before, now in zip([None, *path], path, strict=False)
    ]
    return {
        "name": "job",
        "run_dir": f"/home/alice/runs/job.{TOKEN}",
        "job_id": job_id,
        "state": state,
        "events": events,
        "elapsed_seconds": 1,
        "started_at": None,
        "ended_at": None,
    }


def test_executed_twice() -> None:
    begun = f"start job.{TOKEN} 7 0\n"
    assert invariants.executed_twice(begun + f"start job.{TOKEN} 7 1\n") == []
    assert len(invariants.executed_twice(begun * 2)) == 1
    alive = begun + f"alive job.{TOKEN} 8 0\n"
    assert len(invariants.executed_twice(alive)) == 1
    assert len(invariants.executed_twice(alive, {"other"})) == 1
    assert invariants.executed_twice(alive, {"job"}) == []
    assert len(invariants.executed_twice(begun * 2, {"job"})) == 1


def test_unknown_to_us() -> None:
    strange = invariants.Record(job_id="8", name="job.zz12cd34ef56", state="RUNNING")
    by_hand = invariants.Record(job_id="9", name="wrap", state="RUNNING")
    assert invariants.unknown_to_us([RECORD, strange, by_hand], [job()]) == []
    lost = invariants.Record(job_id="8", name="job.ab12gh78ij90", state="RUNNING")
    assert invariants.unknown_to_us([lost], [job()]) == [f"I2: {lost} is not in the database"]
    ghost = invariants.Record(job_id="8", name=f"job.{TOKEN}", state="PENDING")
    assert invariants.unknown_to_us([ghost], [job()]) == [f"I2: {ghost} is 7 in the database"]
    refusal = invariants.Record(job_id="8", name=f"job.{TOKEN}", state="FAILED", started=False)
    assert invariants.unknown_to_us([refusal], [job("NOT_SUBMITTED", job_id=None)]) == []


def test_illegal_steps() -> None:
    assert invariants.illegal_steps(job("OUT_OF_MEMORY", "PENDING", "RUNNING", "FAILED")) == []
    assert invariants.illegal_steps(job("COMPLETED", "SUBMITTING", "LOST", "RUNNING")) == []
    (breach,) = invariants.illegal_steps(job("RUNNING", "PENDING", "COMPLETED"))
    assert breach.endswith("COMPLETED -> RUNNING (COMPLETED -> RUNNING) without a new attempt")
    again = job("RUNNING", "PENDING", "COMPLETED")
    again["events"][-1]["attempt"] = 1
    assert invariants.illegal_steps(again) == []
    again["events"].append({**again["events"][-1], "attempt": 0, "detail": "adopted"})
    assert "goes back to an earlier attempt" in invariants.illegal_steps(again)[0]
    torn = job("COMPLETED", "PENDING")
    torn["events"][-1]["detail"] = "RUNNING -> COMPLETED"
    assert "does not fit the event before it" in invariants.illegal_steps(torn)[0]
    (breach,) = invariants.illegal_steps({**job(), "state": "FAILED"})
    assert breach.startswith("I3: job is FAILED, its history says ")
    (breach,) = invariants.illegal_steps({**job(), "elapsed_seconds": -600})
    assert breach == "I3: job ended before it began"


def test_too_many_calls() -> None:
    calls = [faults.Call(command="sbatch", argv=(), started_at=0, rule=None)] * 2
    assert invariants.too_many_calls(calls, {"sbatch": 2, "sacct": 0}) == []
    assert invariants.too_many_calls(calls, {"sbatch": 1}) == [
        "I4: sbatch was called 2 times, at most 1 are allowed"
    ]


def test_disagreements() -> None:
    earlier = invariants.Record(job_id="7", name=f"job.{TOKEN}", state="REQUEUED")
    assert invariants.disagreements([earlier, RECORD], [job()]) == []
    assert invariants.disagreements([], [job("LOST")]) == []
    name = f"job.{TOKEN}"
    assert invariants.disagreements([RECORD], [job("FAILED")]) == [
        f"I5: {name} is FAILED, sacct says COMPLETED"
    ]
    assert invariants.disagreements([], [job()]) == [
        f"I5: {name} is COMPLETED, sacct does not know it"
    ]
    torn = dataclasses.replace(RECORD, state="RUNNING")
    assert invariants.disagreements([torn], [job()]) == [
        f"I5: {name} is COMPLETED, sacct says RUNNING"
    ]
    assert invariants.disagreements([torn], [job()], runaways=True) == []
    assert invariants.disagreements([RECORD], [job("RUNNING")]) == [f"I5: {name} is still RUNNING"]
