"""Exit records as observations."""

from __future__ import annotations

import datetime

import pytest

from orchestrator import jobs
from orchestrator.controller.refresh import evidence
from orchestrator.files import run_folder
from orchestrator.jobs import JobState


@pytest.mark.parametrize(
    ("rc", "outcome", "state"),
    [
        (0, "end", JobState.COMPLETED),
        (137, "end", JobState.FAILED),
        (0, "requeue", JobState.REQUEUED),
    ],
)
def test_state_in_an_exit_record(rc: int, outcome: str, state: JobState) -> None:
    now = datetime.datetime.now(datetime.UTC)
    job = jobs.Job(
        row=7,
        token="abcd12345678",
        cluster="lab",
        scheduler="slurm",
        name="x",
        state=JobState.RUNNING,
        run_dir="/runs/x.abcd12345678",
        created_at=now,
    )
    record = run_folder.ExitRecord(rc=rc, outcome=outcome)
    observed = evidence.observation(job, record, "41", 0)
    assert (observed.state, observed.exit_code) == (state, rc)
