"""What waits for room: the time of the next try, and who waits for the same."""

from __future__ import annotations

import dataclasses
import datetime

from orchestrator import config, jobs
from orchestrator.controller.resubmission import submit_limit as room

NOW = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
JOB = jobs.Job(
    row=1,
    token="abcd12345678",
    cluster="lab",
    scheduler="slurm",
    name="demo",
    state=jobs.JobState.NOT_SUBMITTED,
    run_dir="/runs/demo.abcd12345678",
    created_at=NOW,
    partition="gpu",
    resend_at=NOW,
)


def waiting(row: int, cause: str, **changes: str) -> jobs.Job:
    reason = f"waits for room: {cause}"
    return dataclasses.replace(JOB, row=row, reason=reason, **changes)  # type: ignore[arg-type]


def test_each_refusal_doubles_the_pause() -> None:
    profile = config.Profile()
    pauses = []
    job = JOB
    for _ in range(7):
        changes = room.refused(job, "MaxJobCount", profile, NOW)
        job = dataclasses.replace(job, **changes)  # type: ignore[arg-type]
        assert job.resend_at is not None
        pauses.append((job.resend_at - NOW).total_seconds())
    assert pauses == [60, 120, 240, 480, 900, 900, 900]
    assert (job.reason, job.refusals) == ("waits for room: MaxJobCount", 7)
    assert room.after(10**9, profile, NOW) - NOW == datetime.timedelta(seconds=900)


def test_those_that_wait_for_the_same_are_one_group() -> None:
    drained = "Required partition not available (inactive or drain)"
    full = "Slurm temporarily unable to accept job"
    submit_limit = "QOSMaxSubmitJobPerUserLimit"
    found = room.by_cause(
        [
            waiting(9, submit_limit, qos="tiny"),
            waiting(8, submit_limit, qos="large"),
            waiting(7, submit_limit, qos="tiny"),
            waiting(6, drained, qos="tiny"),
            waiting(5, drained),
            waiting(4, drained, partition="short"),
            waiting(3, full, partition="short"),
            waiting(2, full, account="proj"),
        ]
    )
    assert [[job.row for job in group] for group in found] == [[2, 3], [4], [5, 6], [7, 9], [8]]


def test_behind_an_array_that_is_too_large_only_what_is_as_large_waits() -> None:
    def array(row: int, cause: str) -> jobs.Job:
        return dataclasses.replace(waiting(row, cause), token=f"token{row}")

    tasks = {"token1": 5, "token2": 5, "token3": 1, "token4": 6}
    limited = [array(row, "QOSMaxSubmitJobPerUserLimit") for row in (1, 2, 3, 4)]
    assert [job.row for job in room.behind(limited[0], limited[1:], tasks)] == [2, 4]
    drained = [array(row, "Required partition not available (inactive or drain)") for row in (1, 3)]
    assert room.behind(drained[0], drained[1:], tasks) == drained[1:]


def test_only_the_wish_makes_it_wait() -> None:
    assert JOB.is_deferred and not JOB.ended
    plain = dataclasses.replace(JOB, resend_at=None)
    assert plain.ended and not plain.is_deferred
    # While it is sent it does not wait, and has not ended.
    sending = dataclasses.replace(JOB, state=jobs.JobState.SUBMITTING)
    assert not sending.is_deferred and not sending.ended


def test_what_one_host_cannot_send_another_may() -> None:
    profile = config.Profile()
    changes = room.not_from(JOB, "login1", "/work is gone", profile, NOW)
    job = dataclasses.replace(JOB, **changes)  # type: ignore[arg-type]
    assert job.reason == "cannot be sent from login1: /work is gone"
    assert room.why_not_from(job) == "/work is gone" and room.why_not_from(JOB) == ""
    assert not room.is_due(job, "login1", profile, NOW) and room.is_due(job, "login2", profile, NOW)
    assert room.is_due(job, "login1", profile, NOW + datetime.timedelta(seconds=60))
    taken_back = dataclasses.replace(job, resend_at=None)
    assert not room.is_due(taken_back, "login2", profile, NOW)


def test_what_a_wrong_clock_put_off_is_not_waited_for() -> None:
    profile = config.Profile()
    month = datetime.timedelta(days=30)
    job = dataclasses.replace(JOB, **room.refused(JOB, "full", profile, NOW + month))  # type: ignore[arg-type]
    assert room.is_due(job, "login1", profile, NOW)
    longest = datetime.timedelta(seconds=profile.resend_max_seconds)
    usual = dataclasses.replace(JOB, resend_at=NOW + longest)
    assert not room.is_due(usual, "login1", profile, NOW)


def test_whom_a_refusal_keeps_out() -> None:
    def keeps_out(cause: str, tasks: int, spec_tasks: int, **fields: str) -> bool:
        spec = jobs.JobSpec(**{"name": "a", "partition": "gpu", **fields})  # type: ignore[arg-type]
        return room.keeps_out(waiting(1, cause), tasks, spec, spec_tasks)

    limit = "QOSMaxSubmitJobPerUserLimit"
    assert keeps_out(limit, 10, 10)
    assert not keeps_out(limit, 10, 9), "what is smaller may fit"
    assert not keeps_out(limit, 10, 10, qos="large")
    drained = "Required partition not available (inactive or drain)"
    assert keeps_out(drained, 10, 1, qos="large")
    assert not keeps_out(drained, 10, 1, partition="cpu")
    assert keeps_out("MaxJobCount limit reached", 1, 1, partition="cpu")
