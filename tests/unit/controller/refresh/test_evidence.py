"""Exit records as observations."""

from __future__ import annotations

import datetime

import pytest

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
    record = run_folder.ExitRecord(
        token="abcd12345678", job_id="7", task=0, attempt=0, rc=rc, outcome=outcome, done=True
    )
    now = datetime.datetime.now(datetime.UTC)
    observed = evidence.observation(record, name="x.abcd12345678", at=now)
    assert (observed.state, observed.exit_code) == (state, rc)
