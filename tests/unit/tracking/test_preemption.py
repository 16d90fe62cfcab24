"""Jobs that end in the grace time of their preemption, from output of three releases."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from orchestrator import jobs, tracking
from orchestrator.jobs import JobState
from orchestrator.slurm import sacct, squeue
from tests.unit.tracking import test_decide as cases

RECORDED = Path(__file__).parents[1] / "slurm/recorded"


@dataclasses.dataclass(frozen=True)
class Ended:
    """A job whose step got SIGTERM and whose script exited with 143."""

    before: jobs.Job
    in_squeue: tracking.Observation
    in_sacct: tracking.Observation
    record: tracking.Observation


@pytest.fixture(params=["22.05", "24.11", "26.05"])
def ended(request: pytest.FixtureRequest) -> Ended:
    def lines(command: str) -> list[str]:
        path = RECORDED / request.param / f"{command}-preempted.txt"
        return path.read_text(encoding="utf-8").split("\n")

    queued = squeue.parse(lines("squeue"), lambda *line: True)
    (in_squeue,) = (row for row in queued if row.name.startswith("step143."))
    (in_sacct,) = (row for row in sacct.parse(lines("sacct")) if row.name == in_squeue.name)
    ids = {"job_id": in_squeue.job_id, "raw_job_id": in_squeue.job_id}
    code = {"exit_code": 143, "exit_signal": 0}
    return Ended(
        before=cases.job(state=JobState.RUNNING, started_at=in_squeue.started_at, **ids),
        in_squeue=in_squeue,
        in_sacct=in_sacct,
        record=cases.row(JobState.FAILED, source="record", restart_count=0, **code, **ids),
    )


def preempted(job: jobs.Job) -> bool:
    return job.state is JobState.PREEMPTED


def test_squeue_and_sacct_at_once(ended: Ended) -> None:
    transition = cases.decide(ended.before, squeue=(ended.in_squeue,), sacct=(ended.in_sacct,))
    now = cases.after(ended.before, transition)
    assert preempted(now) and now.settled
    assert now.raw_state == ended.in_sacct.raw_state
    assert transition.attempts[-1].state is JobState.PREEMPTED


def test_sacct_after_squeue_has_forgotten_the_job(ended: Ended) -> None:
    now = cases.after(ended.before, cases.decide(ended.before, squeue=(ended.in_squeue,)))
    assert preempted(now) and not now.settled
    now = cases.after(now, cases.decide(now, exit_record=ended.record))
    assert preempted(now) and not now.settled
    now = cases.after(now, cases.decide(now, sacct=(ended.in_sacct,), exit_record=ended.record))
    assert preempted(now) and now.settled


def test_without_accounting(ended: Ended) -> None:
    transition = cases.decide(
        ended.before, squeue=(ended.in_squeue,), exit_record=ended.record, accounting=False
    )
    now = cases.after(ended.before, transition)
    assert preempted(now) and now.settled


def test_a_failure_of_the_next_attempt_is_no_preemption(ended: Ended) -> None:
    now = cases.after(ended.before, cases.decide(ended.before, squeue=(ended.in_squeue,)))
    second = dataclasses.replace(ended.in_sacct, state=JobState.FAILED, row_number=1)
    now = cases.after(now, cases.decide(now, sacct=(ended.in_sacct, second)))
    assert (now.state, now.attempt) == (JobState.FAILED, 1)
