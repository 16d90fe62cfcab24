"""What a failed try means for a submission that waits: it goes on waiting, or it has ended."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path

import pytest

from orchestrator import errors, jobs, specs
from orchestrator.controller.resubmission import resend, resubmit
from orchestrator.controller.session import stores
from orchestrator.controller.submission import submit
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
HERE = f"cannot be sent from {socket.gethostname()}: no"


@pytest.mark.parametrize(
    ("failure", "reason", "waits", "goes_on"),
    [
        (resubmit.BusyError("no"), "waits for room: x", True, False),
        (submit.OvertakenError("no"), "waits for room: x", True, False),
        (resubmit.NotFromHereError("no"), HERE, True, True),
        (resubmit.BeforeItsTurnError("no"), "waits: no", True, True),
        (errors.ConflictError("no"), "no", False, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_a_failed_try_means(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    reason: str,
    waits: bool,
    goes_on: bool,
) -> None:
    def send_again(*args: object, **options: object) -> jobs.Job:
        raise failure

    monkeypatch.setattr(resubmit, "send_again", send_again)
    record = jobs.Submission(
        token="abcd00000001",
        cluster="lab",
        scheduler="slurm",
        name="demo",
        script="",
        spec=specs.to_json(jobs.JobSpec(name="demo")),
        run_dir=str(tmp_path),
        provenance="{}",
        created_at=NOW,
    )
    with stores.Store(tmp_path / "x.db") as store:
        context = builders.make_context(tmp_path, store, now=NOW)
        with store.writing() as work:
            # Of an array one task stands for all.
            first, *_ = work.jobs.add_submission(
                record,
                array_tasks=[0, 1],
                state=jobs.JobState.NOT_SUBMITTED,
                settled=True,
                reason="waits for room: x",
                resend_at=NOW,
            )
        assert resend._send(context, [first], {record.token: 2}) is goes_on
        with store.reading() as work:
            found = work.jobs.of_submissions([record.token])
            told = [work.events.of_job(job.row) for job in found]
    assert [(job.reason, job.is_deferred) for job in found] == [(reason, waits)] * 2
    assert [[event.detail for event in events] for events in told] == (
        [[]] * 2 if reason.startswith("waits for room") else [[reason]] * 2
    )
    # A minute, however often: what it waits for may come at any time.
    is_refusal = isinstance(failure, resubmit.NotFromHereError)
    assert [job.refusals for job in found] == [int(is_refusal)] * 2
