"""Which records are a tracked job's: a reused job ID, a requeue, a new name."""

from __future__ import annotations

import datetime

import pytest

from orchestrator import jobs, tracking
from orchestrator.controller.refresh import identity
from tests import builders

AT = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
LINE = "sbatch job.sh"


def later(minutes: int) -> datetime.datetime:
    return AT + datetime.timedelta(minutes=minutes)


def job(restarts: int = 0, submitted: int = 0) -> jobs.Job:
    return builders.make_job(
        name="hand",
        tracked_name="hand",
        job_id="41",
        created_at=AT,
        submitted_at=later(submitted),
        restart_count=restarts,
    )


def row(minutes: int, restarts: int | None = None, **changes: object) -> tracking.Observation:
    columns: dict[str, object] = {
        "source": "squeue",
        "name": "hand",
        "job_id": "41",
        "raw_job_id": "41",
        "state": jobs.JobState.RUNNING,
        "raw_state": "RUNNING",
        "submitted_at": later(minutes),
        "restart_count": restarts,
        "submit_line": LINE,
    }
    return tracking.Observation(**{**columns, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "seen", "his"),
    [
        ((0, 0), (0, 0), True),
        # COMPLETING before a requeue: the count has grown and the time has not.
        ((0, 0), (0, 1), True),
        ((1, 0), (5, 1), True),
        ((0, 0), (5, 2), True),
        # A new job under the ID begins without restarts.
        ((0, 0), (5, 0), False),
        ((2, 5), (9, 0), False),
        ((2, 5), (9, 1), False),
        # A clock that went back, or an older job of that ID.
        ((0, 5), (0, 0), False),
        ((1, 5), (0, 2), False),
    ],
)
def test_a_requeue_is_distinguished_from_a_reused_id(
    known: tuple[int, int], seen: tuple[int, int], his: bool
) -> None:
    rows = (row(*seen),)
    assert identity.rows_in_squeue(job(*known), rows) == (rows if his else ())


def test_another_name_is_no_proof() -> None:
    renamed = row(0, 0, name="other")
    assert identity.rows_in_squeue(job(), (renamed,)) == ()
    assert identity.may_be(job(), renamed)


def ended(minutes: int, number: int, state: jobs.JobState, **changes: object):
    return row(minutes, source="sacct", row_number=number, state=state, **changes)


def test_rows_of_accounts_follow_one_another() -> None:
    requeued = ended(0, 0, jobs.JobState.REQUEUED)
    resized = ended(2, 1, jobs.JobState.RESIZING)
    again = ended(3, 2, jobs.JobState.COMPLETED)
    assert identity.rows_in_sacct(job(), (again, resized, requeued)) == (requeued, again)
    older = ended(-9, 0, jobs.JobState.COMPLETED)
    assert identity.rows_in_sacct(job(), (older, requeued, again)) == (requeued, again)


def test_row_after_one_without_an_end_is_another_job() -> None:
    lost = ended(0, 0, jobs.JobState.RUNNING)
    other = ended(3, 1, jobs.JobState.COMPLETED)
    assert identity.rows_in_sacct(job(), (lost, other)) == (lost,)
    assert identity.rows_in_sacct(job(), (other,)) == ()
    foreign = ended(3, 1, jobs.JobState.COMPLETED, submit_line="sbatch else.sh")
    failed = ended(0, 0, jobs.JobState.FAILED)
    assert identity.rows_in_sacct(job(), (failed, foreign)) == (failed,)
