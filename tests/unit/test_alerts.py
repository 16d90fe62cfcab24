"""When a job that runs is said to be stalled, slow or without a loss, and when no longer."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.diagnosis import alerts

NOW = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)
JOB = jobs.Job(
    row=7,
    token="abcd12345678",
    cluster="fake",
    scheduler="slurm",
    name="demo",
    state=jobs.JobState.RUNNING,
    run_dir="/runs/demo.abcd12345678",
    created_at=NOW,
    job_id="123",
    attempt=1,
)


def told(name: str, *values: float, rank: int | None = None, attempt: int = 1) -> list[jobs.Metric]:
    return [
        jobs.Metric(
            name=name,
            value=value,
            unit="images/second",
            step=step,
            rank=rank,
            attempt=attempt,
            source="jsonl",
        )
        for step, value in enumerate(values)
    ]


def look(
    job: jobs.Job,
    metrics: Sequence[jobs.Metric] = (),
    *,
    silent_minutes: float | None = None,
    rules: alerts.Rules | None = None,
) -> tuple[jobs.Job, list[str]]:
    """The job after a look, and what its history says of it."""
    silent = datetime.timedelta(minutes=silent_minutes or 0)
    seen = alerts.Seen(
        written_at=None if silent_minutes is None else NOW - silent,
        silent_seconds=silent.total_seconds(),
        metrics=metrics,
    )
    found, events = alerts.judge(job, rules or alerts.Rules(), seen, now=NOW)
    lines = [f"{event.kind} {event.detail}" for event in events]
    return dataclasses.replace(job, alerts=found), lines


def test_a_stalled_job_is_told_once() -> None:
    job, lines = look(JOB, silent_minutes=29.9)
    assert (job.current_alerts, lines) == ((), [])
    job, lines = look(job, silent_minutes=34)
    assert lines == ["alert stalled: no new line in its log or its metrics for 34 minutes"]
    assert job.current_alerts[0].since == NOW - datetime.timedelta(minutes=34)
    for silent_minutes in (64, None):
        again, lines = look(job, silent_minutes=silent_minutes)
        assert (again.current_alerts, lines) == (job.current_alerts, [])
    job, lines = look(job, silent_minutes=0.1)
    assert (job.current_alerts, lines) == ((), ["recovered no longer stalled"])
    assert look(JOB, silent_minutes=999, rules=alerts.Rules(stalled_minutes=0))[1] == []


def test_slow_is_below_a_share_of_its_own_median() -> None:
    usual = [100.0, 102.0, 98.0, 100.0, 100.0]
    assert look(JOB, told("throughput", *usual, 51.0, 51.0, 51.0))[1] == []
    job, lines = look(JOB, told("throughput", *usual, 49.0, 40.0, 40.0))
    assert lines == ["alert slow: throughput is 40 images/second, 40 % of its median 100"]
    # It comes and goes only when it is well above.
    assert look(job, told("throughput", *usual, 54.0, 54.0, 54.0))[1] == []
    assert look(job, told("throughput", *usual, 56.0, 56.0, 56.0))[1] == [
        "recovered no longer slow"
    ]
    # Too few, of an attempt before, of another rank.
    assert look(JOB, told("throughput", *usual[1:], 4.0, 4.0, 4.0))[1] == []
    assert look(JOB, told("throughput", *usual, 4.0, 4.0, 4.0, attempt=0))[1] == []
    mixed = told("throughput", *usual, rank=0) + told("throughput", 4.0, 4.0, 4.0, rank=1)
    assert look(JOB, mixed)[1] == []


def test_a_loss_that_is_no_number() -> None:
    job, lines = look(JOB, told("loss", 2.0, math.nan))
    assert lines == ["alert nan_loss: loss is NaN at step 1"]
    assert look(job, told("loss", 2.0, math.nan, math.inf))[1] == []
    assert look(job, told("loss", math.nan, 2.0))[1] == [
        "recovered no longer without a loss that is a number"
    ]
    one_rank = told("loss", 2.0, math.nan, rank=1) + told("loss", 2.0, 1.0, rank=0)
    assert look(JOB, one_rank)[1] == ["alert nan_loss: loss is NaN at step 1"]
    assert look(JOB, told("loss", math.nan), rules=alerts.Rules(nan_loss=False))[1] == []


def test_alerts_end_with_the_attempt() -> None:
    job, _ = look(JOB, silent_minutes=34)
    assert dataclasses.replace(job, state=jobs.JobState.COMPLETED).current_alerts == ()
    assert dataclasses.replace(job, attempt=2).current_alerts == ()


def test_the_spec_is_stronger_than_the_profile() -> None:
    spec, profile = jobs.Alerts(stalled_minutes=5), jobs.Alerts(stalled_minutes=10, slow_percent=0)
    assert alerts.Rules.of(spec, profile) == alerts.Rules(stalled_minutes=5, slow_percent=0)
