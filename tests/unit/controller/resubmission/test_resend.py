"""Effects of a failed attempt on a deferred submission."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path

import pytest

from orchestrator import errors, jobs
from orchestrator.controller.resubmission import deferred_jobs, resubmit
from orchestrator.controller.session import stores
from orchestrator.controller.submission import submit
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
HERE = f"cannot be submitted from {socket.gethostname()}: no"
SPEC_ERROR = errors.SpecError([errors.Problem(source="spec", key="job.x", message="unknown key")])
UNREADABLE = (
    f"cannot be submitted from {socket.gethostname()}: "
    "another version wrote its spec: spec: job.x: unknown key"
)


@pytest.mark.parametrize(
    ("failure", "reason", "is_deferred", "continues"),
    [
        (resubmit.BusyError("no"), "deferred: x", True, False),
        (submit.OvertakenError("no"), "deferred: x", True, False),
        (resubmit.WrongHostError("no"), HERE, True, True),
        (SPEC_ERROR, UNREADABLE, True, True),
        (resubmit.NotReadyError("no"), "deferred: no", True, True),
        (errors.ConflictError("no"), "no", False, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failed_attempt(
    tmp_path: Path,
    database_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    reason: str,
    is_deferred: bool,
    continues: bool,
) -> None:
    def send_again(*args: object, **options: object) -> jobs.Job:
        raise failure

    monkeypatch.setattr(resubmit, "send_again", send_again)
    record = builders.make_submission(1, NOW, run_dir=str(tmp_path))
    with stores.Store(database_file) as store:
        context = builders.make_context(tmp_path, store, now=NOW)
        with store.writing() as work:
            # One task represents the whole array.
            first, *_ = work.jobs.add_submission(
                record,
                array_tasks=[0, 1],
                state=jobs.JobState.NOT_SUBMITTED,
                settled=True,
                reason="deferred: x",
                resend_at=NOW,
            )
        assert deferred_jobs._send_group(context, [first], {record.token: 2}) is continues
        with store.reading() as work:
            result = work.jobs.of_submissions([record.token])
            reported = [work.events.of_job(job.row) for job in result]
    assert [(job.reason, job.is_deferred) for job in result] == [(reason, is_deferred)] * 2
    assert [[event.detail for event in events] for events in reported] == (
        [[]] * 2 if reason == "deferred: x" else [[reason]] * 2
    )
    is_refusal = isinstance(failure, resubmit.WrongHostError | errors.SpecError)
    assert [job.refusals for job in result] == [int(is_refusal)] * 2
