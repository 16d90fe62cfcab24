"""Exit records as observations."""

from __future__ import annotations

import datetime

import pytest

from orchestrator.controller.refresh import evidence
from orchestrator.files import run_folder
from orchestrator.jobs import JobState
from tests import builders


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
    job = builders.make_job(job_id=None, row=7, name="x", created_at=now)
    record = run_folder.ExitRecord(rc=rc, outcome=outcome)
    observed = evidence.observation(job, record, "41", 0)
    assert (observed.state, observed.exit_code) == (state, rc)
