"""Which jobs wait until somebody releases them."""

import datetime

import pytest

from orchestrator import diagnosis, jobs
from orchestrator.jobs import JobState


@pytest.mark.parametrize(
    ("state", "reason", "held"),
    [
        (JobState.PENDING, "JobHeldUser", True),
        (JobState.PENDING, "JobHeldAdmin", True),
        (JobState.PENDING, "JobHoldMaxRequeue", True),
        (JobState.PENDING, "BeginTime,JobHeldUser", True),
        (JobState.PENDING, "job requeued in held state", True),
        (JobState.PENDING, "launch failed requeued held", True),
        (JobState.REQUEUE_HOLD, None, True),
        (JobState.SPECIAL_EXIT, "job requeued in held state", True),
        (JobState.PENDING, "Priority", False),
        (JobState.PENDING, None, False),
        # Measured: on its way there.
        (JobState.COMPLETING, "job requeued in held state", False),
        # squeue shows it of a running job after `scontrol hold`.
        (JobState.RUNNING, "JobHeldUser", False),
    ],
)
def test_held(state, reason, held):
    job = jobs.Job(
        row=1,
        token="abcd12345678",
        cluster="lab",
        scheduler="slurm",
        name="demo",
        state=state,
        reason=reason,
        run_dir="/r",
        created_at=datetime.datetime.now(datetime.UTC),
    )
    assert diagnosis.is_held(job) is held
    if held and state is JobState.PENDING and "," not in str(reason):
        assert diagnosis.waiting(str(reason))[0] is diagnosis.Waiting.PERSON
