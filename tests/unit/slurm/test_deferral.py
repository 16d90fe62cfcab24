"""Deferred jobs: the time of the next attempt, and which share a limit."""

from __future__ import annotations

import dataclasses
import datetime

from orchestrator import config, jobs
from orchestrator.slurm import deferral
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
JOB = builders.make_job(
    job_id=None, state=jobs.JobState.NOT_SUBMITTED, created_at=NOW, partition="gpu", resend_at=NOW
)


def deferred(row: int, cause: str, **changes: str) -> jobs.Job:
    reason = f"deferred: {cause}"
    return dataclasses.replace(JOB, row=row, reason=reason, **changes)  # type: ignore[arg-type]


def test_each_refusal_doubles_the_delay() -> None:
    profile = config.Profile()
    pauses = []
    job = JOB
    for _ in range(7):
        changes = deferral.refused(job, "MaxJobCount", profile, NOW)
        job = dataclasses.replace(job, **changes)  # type: ignore[arg-type]
        assert job.resend_at is not None
        pauses.append((job.resend_at - NOW).total_seconds())
    assert pauses == [60, 120, 240, 480, 900, 900, 900]
    assert (job.reason, job.refusals) == ("deferred: MaxJobCount", 7)
    assert deferral.after(10**9, profile, NOW) - NOW == datetime.timedelta(seconds=900)


def test_groups_by_limit_and_partition() -> None:
    drained = "Required partition not available (inactive or drain)"
    full = "Slurm temporarily unable to accept job"
    limit = "QOSMaxSubmitJobPerUserLimit"
    groups = deferral.groups(
        [
            deferred(9, limit, qos="tiny"),
            deferred(8, limit, qos="large"),
            deferred(7, limit, qos="tiny"),
            deferred(6, drained, qos="tiny"),
            deferred(5, drained),
            deferred(4, drained, partition="short"),
            deferred(3, full, partition="short"),
            deferred(2, full, account="proj"),
        ]
    )
    assert [[job.row for job in group] for group in groups] == [[2, 3], [4], [5, 6], [7, 9], [8]]


def test_a_smaller_submission_may_fit_after_a_refused_array() -> None:
    def array(row: int, cause: str) -> jobs.Job:
        return dataclasses.replace(deferred(row, cause), token=f"token{row}")

    tasks = {"token1": 5, "token2": 5, "token3": 1, "token4": 6}
    limited = [array(row, "QOSMaxSubmitJobPerUserLimit") for row in (1, 2, 3, 4)]
    assert [job.row for job in deferral.behind(limited[0], limited[1:], tasks)] == [2, 4]
    drained = [array(row, "Required partition not available (inactive or drain)") for row in (1, 3)]
    assert deferral.behind(drained[0], drained[1:], tasks) == drained[1:]


def test_a_job_is_deferred_only_with_a_next_attempt() -> None:
    assert JOB.is_deferred and not JOB.ended
    plain = dataclasses.replace(JOB, resend_at=None)
    assert plain.ended and not plain.is_deferred
    # While it is sent it does not wait, and has not ended.
    sending = dataclasses.replace(JOB, state=jobs.JobState.SUBMITTING)
    assert not sending.is_deferred and not sending.ended


def test_another_host_may_submit_at_once() -> None:
    profile = config.Profile()
    changes = deferral.failed_on_host(JOB, "login1", "/work is gone", profile, NOW)
    job = dataclasses.replace(JOB, **changes)  # type: ignore[arg-type]
    assert job.reason == "cannot be submitted from login1: /work is gone"
    assert deferral.failure_on_host(job) == ("login1", "/work is gone")
    assert deferral.failure_on_host(JOB) == ("", "")
    assert not deferral.is_due(job, "login1", profile, NOW) and deferral.is_due(
        job, "login2", profile, NOW
    )
    assert deferral.is_due(job, "login1", profile, NOW + datetime.timedelta(seconds=60))
    taken_back = dataclasses.replace(job, resend_at=None)
    assert not deferral.is_due(taken_back, "login2", profile, NOW)


def test_a_time_from_a_wrong_clock_is_ignored() -> None:
    profile = config.Profile()
    month = datetime.timedelta(days=30)
    job = dataclasses.replace(JOB, **deferral.refused(JOB, "full", profile, NOW + month))  # type: ignore[arg-type]
    assert deferral.is_due(job, "login1", profile, NOW)
    longest = datetime.timedelta(seconds=profile.resend_max_seconds)
    usual = dataclasses.replace(JOB, resend_at=NOW + longest)
    assert not deferral.is_due(usual, "login1", profile, NOW)


def test_refusals_that_apply_to_a_new_submission() -> None:
    def keeps_out(cause: str, tasks: int, spec_tasks: int, **fields: str) -> bool:
        spec = jobs.JobSpec(**{"name": "a", "partition": "gpu", **fields})  # type: ignore[arg-type]
        return deferral.keeps_out(deferred(1, cause), tasks, spec, spec_tasks)

    limit = "QOSMaxSubmitJobPerUserLimit"
    assert keeps_out(limit, 10, 10)
    assert not keeps_out(limit, 10, 9), "what is smaller may fit"
    assert not keeps_out(limit, 10, 10, qos="large")
    drained = "Required partition not available (inactive or drain)"
    assert keeps_out(drained, 10, 1, qos="large")
    assert not keeps_out(drained, 10, 1, partition="cpu")
    assert keeps_out("MaxJobCount limit reached", 1, 1, partition="cpu")
