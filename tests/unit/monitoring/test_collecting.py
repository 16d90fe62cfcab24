"""The exported metrics: values from the database, bounded labels, totals that never decrease."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import parser

from orchestrator import jobs, metrics, monitoring
from orchestrator.controller.monitoring import collecting
from orchestrator.controller.session import contexts, stores
from orchestrator.jobs import JobState
from tests import builders

NOW = datetime.datetime(2026, 11, 28, 8, 0, tzinfo=datetime.UTC)


def ago(**time: float) -> datetime.datetime:
    return NOW - datetime.timedelta(**time)


@pytest.fixture
def store(database_url: str) -> Iterator[stores.Store]:
    with stores.Store(database_url) as store:
        yield store


@pytest.fixture
def context(tmp_path: Path, store: stores.Store) -> contexts.Context:
    return builders.make_context(tmp_path, store, now=NOW)


def parsed(context: contexts.Context) -> dict[str, float]:
    """Return the samples as `name{label=value}`, without those that are 0."""
    found = {}
    for family in parser.text_string_to_metric_families(collecting.text(context)):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            key = f"{sample.name.removeprefix('orchestrator_')}{{{labels}}}"
            if sample.value:
                found[key] = sample.value
    return found


def add_job(store: stores.Store, number: int, **fields: object) -> int:
    with store.writing() as work:
        submission = builders.make_submission(number, NOW, name=f"job{number}")
        (job,) = work.jobs.add_submission(submission, **{"job_id": str(number), **fields})
    return job.row


def end(store: stores.Store, row: int, state: JobState = JobState.FAILED, gpus: int = 8) -> None:
    """Store an attempt that waited 10 minutes and ran for an hour."""
    with store.writing() as work:
        attempt = jobs.Attempt(
            number=0,
            state=state,
            submitted_at=ago(minutes=100),
            started_at=ago(minutes=90),
            ended_at=ago(minutes=30),
        )
        work.attempts.put([(row, attempt)])
        fields = {"state": state, "settled": True, "gpus": gpus, "ended_at": ago(minutes=30)}
        work.jobs.change_many([(row, fields, None)])


def line(step: int, value: float, attempt: int = 0) -> metrics.ParsedLine:
    return metrics.ParsedLine(
        path="",
        source="log:demo",
        attempt=attempt,
        rank=None,
        world_size=None,
        names=(("throughput", "images/s"),),
        step=step,
        epoch=0,
        time=NOW,
        line=step,
        values=(value,),
    )


def test_an_empty_database(context: contexts.Context) -> None:
    assert parsed(context) == {
        "build_info{version=0.1.0}": 1,
        "collected_timestamp_seconds{}": NOW.timestamp(),
    }


def test_live_jobs(tmp_path: Path, context: contexts.Context, store: stores.Store) -> None:
    log = tmp_path / "1.out"
    log.write_text("step 1\n")
    os.utime(log, (ago(minutes=5).timestamp(),) * 2)
    running = add_job(
        store,
        1,
        state=JobState.RUNNING,
        started_at=ago(hours=1),
        gpus=8,
        partition="gpu",
        stdout_path=str(log),
        restart_count=2,
    )
    add_job(store, 2, state=JobState.PENDING, submitted_at=ago(hours=3))
    alert = jobs.Alert(rule="stalled", attempt=0, since=NOW, detail="")
    with store.writing() as work:
        work.metrics.add(running, [line(1, 100.0), line(2, 250.5)])
        work.jobs.change_many([(running, {"alerts": (alert,)}, None)])
    found = parsed(context)
    one, two = "job_id=1,name=job1,cluster=lab", "job_id=2,name=job2,cluster=lab"
    assert {key: value for key, value in found.items() if "job_id" in key} == {
        f"job_info{{{one},state=RUNNING,partition=gpu,sweep=}}": 1,
        f"job_info{{{two},state=PENDING,partition=,sweep=}}": 1,
        f"job_submitted_timestamp_seconds{{{two}}}": ago(hours=3).timestamp(),
        f"job_started_timestamp_seconds{{{one}}}": ago(hours=1).timestamp(),
        f"job_gpus{{{one}}}": 8,
        f"job_restarts{{{one}}}": 2,
        f"job_last_progress_timestamp_seconds{{{one}}}": ago(minutes=5).timestamp(),
        f"job_throughput{{{one},metric=throughput,unit=images/s}}": 250.5,
        f"job_step{{{one}}}": 2,
        f"job_alert{{{one},rule=stalled}}": 1,
    }
    assert found["jobs{state=RUNNING}"] == found["jobs{state=PENDING}"] == 1
    assert found["running_gpus{}"] == 8
    assert found["oldest_pending_submitted_timestamp_seconds{}"] == ago(hours=3).timestamp()


def test_job_labels_are_bounded_and_running_jobs_come_first(
    context: contexts.Context, store: stores.Store
) -> None:
    add_job(store, 1, state=JobState.RUNNING, started_at=NOW)
    with store.writing() as work:
        work.jobs.add_submission(
            builders.make_submission(2, NOW, name="many"),
            array_tasks=range(monitoring.MAX_JOBS + 20),
            state=JobState.PENDING,
            array_job_id="2",
        )
    found = parsed(context)
    infos = [key for key in found if key.startswith("job_info{")]
    assert len(infos) == monitoring.MAX_JOBS
    assert "job_id=1," in infos[0]
    assert found["live_jobs_dropped{}"] == 21
    assert found["jobs{state=PENDING}"] == monitoring.MAX_JOBS + 20


def test_hostile_names_are_escaped(context: contexts.Context, store: stores.Store) -> None:
    name = 'a"b\\c\nd\x1b[2J\u2028'
    with store.writing() as work:
        work.jobs.add_submission(
            builders.make_submission(1, NOW, name=name), state=JobState.PENDING, job_id="1"
        )
    text = collecting.text(context)
    (info,) = [each for each in text.splitlines() if each.startswith("orchestrator_job_info")]
    assert r'name="a\"b\\c\\nd\\x1b[2J\\u2028"' in info


def test_totals_of_final_attempts(context: contexts.Context, store: stores.Store) -> None:
    row = add_job(store, 1, state=JobState.RUNNING, started_at=ago(minutes=90))
    end(store, row)
    with store.writing() as work:
        # sacct may still correct it.
        work.jobs.change_many([(row, {"settled": False}, None)])
    assert "gpu_seconds_total{}" not in parsed(context)
    with store.writing() as work:
        work.jobs.change_many([(row, {"settled": True}, None)])
    found = parsed(context)
    assert found["attempts_ended_total{state=FAILED}"] == 1
    assert found["gpu_seconds_total{}"] == 8 * 3600
    assert found["queue_wait_seconds_sum{}"] == 600
    assert found["queue_wait_seconds_count{}"] == 1
    assert found["last_job_failure_timestamp_seconds{}"] == ago(minutes=30).timestamp()


def test_totals_stay_when_rows_are_pruned(context: contexts.Context, store: stores.Store) -> None:
    rows = [add_job(store, number, state=JobState.PENDING) for number in (1, 2, 3)]
    for row, state in zip(
        rows, (JobState.FAILED, JobState.COMPLETED, JobState.FAILED), strict=True
    ):
        end(store, row, state)
    before = parsed(context)
    assert before["attempts_ended_total{state=FAILED}"] == 2
    # Two calls of prune.
    for part in ([rows[0]], [rows[1], rows[2]]):
        with store.writing() as work:
            work.monitoring.keep_totals(part)
            work.prune.delete_jobs(part)
    after = parsed(context)
    assert "jobs{state=FAILED}" in before and "jobs{state=FAILED}" not in after
    totals = [key for key in before if "_total{" in key or key.startswith("queue_wait")]
    assert len(totals) == 5
    assert {key: after[key] for key in totals} == {key: before[key] for key in totals}


def test_alert_rules_and_last_failure_have_the_same_failed_states(checkout: Path) -> None:
    rules = (checkout / "docs" / "monitoring" / "alerts.yml").read_text()
    (excluded,) = re.findall(r'attempts_ended_total\{state!~"([A-Z_|]+)"\}', rules)
    assert jobs.TERMINAL - {JobState(state) for state in excluded.split("|")} == collecting.FAILED
