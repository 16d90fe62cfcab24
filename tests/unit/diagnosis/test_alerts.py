"""When alerts about running jobs begin and end."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.diagnosis import alerts
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)
JOB = builders.make_job(row=7, created_at=NOW, job_id="123", attempt=1)


def series(
    name: str, *values: float, rank: int | None = None, attempt: int = 1
) -> list[jobs.Metric]:
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


def check(
    job: jobs.Job,
    metrics: Sequence[jobs.Metric] = (),
    *,
    silent_minutes: float | None = None,
    rules: alerts.Rules | None = None,
    hosts: Sequence[str] = (),
) -> tuple[jobs.Job, list[str]]:
    """Return the job after a check, and the new lines of its history."""
    silent = datetime.timedelta(minutes=silent_minutes or 0)
    current, events = alerts.judge(
        job,
        rules or alerts.Rules(),
        metrics,
        written_at=None if silent_minutes is None else NOW - silent,
        silent_seconds=silent.total_seconds(),
        now=NOW,
        hosts=hosts,
    )
    lines = [f"{event.kind} {event.detail}" for event in events]
    return dataclasses.replace(job, alerts=current), lines


def test_stalled_is_reported_once() -> None:
    job, lines = check(JOB, silent_minutes=29.9)
    assert (job.current_alerts, lines) == ((), [])
    job, lines = check(job, silent_minutes=34)
    assert lines == ["alert stalled: no output in its log or metrics for 34 minutes"]
    assert job.current_alerts[0].since == NOW - datetime.timedelta(minutes=34)
    for silent_minutes in (64, None):
        again, lines = check(job, silent_minutes=silent_minutes)
        assert (again.current_alerts, lines) == (job.current_alerts, [])
    job, lines = check(job, silent_minutes=0.1)
    assert (job.current_alerts, lines) == ((), ["recovered no longer stalled"])
    assert check(JOB, silent_minutes=999, rules=alerts.Rules(stalled_minutes=0))[1] == []


def test_a_straggler_is_named_with_host_and_gpu() -> None:
    def times(slowest: float, name: str = "step_time", ranks: int = 4) -> list[jobs.Metric]:
        last = {3: slowest}
        values = [series(name, *[last.get(rank, 2.0)] * 3, rank=rank) for rank in range(ranks)]
        return [dataclasses.replace(m, unit="s") for each in values for m in each]

    gpu_job = dataclasses.replace(JOB, gpus=4)
    where = {"hosts": ["n1", "n2"]}
    assert check(gpu_job, times(2.9), **where)[1] == []
    job, lines = check(gpu_job, times(4.2), **where)
    found = "takes 2.1 times as long as others (step_time 4.2 s, others 2)"
    assert lines == [f"alert straggler: rank 3 on n2, GPU 1, {found}"]
    # It ends only when it is well below.
    assert check(job, times(2.95), **where)[1] == []
    assert check(job, times(2.5), **where)[1] == ["recovered all ranks are equally fast again"]
    # Without GPUs, with an unknown order, and by the time without waiting for others.
    assert check(JOB, times(4.2), **where)[1] == [f"alert straggler: rank 3 on n2 {found}"]
    assert check(JOB, times(4.2), hosts=["n1", "n2", "n3"])[1] == [
        f"alert straggler: rank 3 {found}"
    ]
    both = times(2.0) + times(4.2, "compute_time")
    assert check(JOB, both)[1] == [
        f"alert straggler: rank 3 {found.replace('step_time', 'compute_time')}"
    ]
    assert check(JOB, times(2.0, "compute_time") + times(4.2))[1] == []
    assert check(JOB, times(4.2, ranks=1) + series("step_time", 9.0, rank=1))[1] == []
    assert check(JOB, times(4.2), rules=alerts.Rules(straggler_percent=0))[1] == []


def test_slow_is_relative_to_the_own_median() -> None:
    usual = [100.0, 102.0, 98.0, 100.0, 100.0]
    assert check(JOB, series("throughput", *usual, 51.0, 51.0, 51.0))[1] == []
    job, lines = check(JOB, series("throughput", *usual, 49.0, 40.0, 40.0))
    assert lines == ["alert slow: throughput is 40 images/second, 40 % of its median 100"]
    # It comes and goes only when it is well above.
    assert check(job, series("throughput", *usual, 54.0, 54.0, 54.0))[1] == []
    assert check(job, series("throughput", *usual, 56.0, 56.0, 56.0))[1] == [
        "recovered no longer slow"
    ]
    # Too few, of an attempt before, of another rank.
    assert check(JOB, series("throughput", *usual[1:], 4.0, 4.0, 4.0))[1] == []
    assert check(JOB, series("throughput", *usual, 4.0, 4.0, 4.0, attempt=0))[1] == []
    mixed = series("throughput", *usual, rank=0) + series("throughput", 4.0, 4.0, 4.0, rank=1)
    assert check(JOB, mixed)[1] == []


def test_nan_loss() -> None:
    job, lines = check(JOB, series("loss", 2.0, math.nan))
    assert lines == ["alert nan_loss: loss is NaN at step 1"]
    assert check(job, series("loss", 2.0, math.nan, math.inf))[1] == []
    assert check(job, series("loss", math.nan, 2.0))[1] == ["recovered loss is finite again"]
    one_rank = series("loss", 2.0, math.nan, rank=1) + series("loss", 2.0, 1.0, rank=0)
    assert check(JOB, one_rank)[1] == ["alert nan_loss: loss is NaN at step 1"]
    assert check(JOB, series("loss", math.nan), rules=alerts.Rules(nan_loss=False))[1] == []


def test_alerts_end_with_the_attempt() -> None:
    job, _ = check(JOB, silent_minutes=34)
    assert dataclasses.replace(job, state=jobs.JobState.COMPLETED).current_alerts == ()
    assert dataclasses.replace(job, attempt=2).current_alerts == ()


def test_spec_takes_precedence_over_profile() -> None:
    spec, profile = jobs.Alerts(stalled_minutes=5), jobs.Alerts(stalled_minutes=10, slow_percent=0)
    assert alerts.Rules.of(spec, profile) == alerts.Rules(stalled_minutes=5, slow_percent=0)
