"""Jobs, attempts and metrics as rows: their fields, times and elapsed seconds."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from orchestrator import jobs, sweeps
from orchestrator.cli import output, status
from orchestrator.cli.output import job_tables
from orchestrator.rows import job_rows, sweep_rows
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)
JOB = builders.make_job(
    row=7,
    created_at=NOW,
    job_id="123",
    reason="None",
    time_limit_seconds=7200,
    started_at=NOW - datetime.timedelta(hours=1),
    labels=("team=vision",),
)
#: Design section 5, and docs/design.md.
FIELDS = (
    "row, job_id, array_job_id, array_task_id, name, cluster, scheduler, state, raw_state, reason, "
    "cause, exit_code, exit_signal, partition, account, qos, nodes, gpus, cpus, node_list, "
    "time_limit_seconds, submitted_at, started_at, ended_at, elapsed_seconds, attempt, "
    "restart_count, sweep, labels, run_dir, stdout_path, stderr_path, stale_since, resend_at, "
    "alerts, continues"
)


def test_a_job_has_the_promised_fields() -> None:
    row = job_rows.job_row(JOB, NOW)
    assert list(row) == FIELDS.split(", ")
    assert (row["elapsed_seconds"], row["labels"]) == (3600, ["team=vision"])


def test_a_point_without_a_job_has_the_fields_of_one_with_a_job() -> None:
    shape = sweeps.Shape(key="34cd", spec="{}", gpu_hours=None, node_hours=None)
    point = sweeps.StoredPoint(
        number=1,
        name="x1",
        identity="12ab",
        shape=shape,
        repeat=1,
        settings={"args.x": 1},
        changes={"args.x": 1},
        job=None,
    )
    points = [dataclasses.replace(point, job=job) for job in (JOB, None)]
    with_job, without = (sweep_rows.point_row(point, NOW) for point in points)
    assert list(with_job) == list(without)
    assert (with_job["elapsed_seconds"], without["elapsed_seconds"]) == (3600, None)
    line = sweep_rows.point_line(points[0], NOW)
    assert {*line} - {*with_job} == {"elapsed"}


def test_stale_jobs_of_slurm_and_of_other_machines() -> None:
    local = dataclasses.replace(JOB, scheduler="local", cluster="local:n1", stale_since=NOW)
    slurm = dataclasses.replace(JOB, stale_since=NOW)
    for shown in ([local, slurm], [slurm, local]):
        assert status._staleness(shown, "").endswith(
            "jobs of n1 are updated only there: run `orchestrator status` there"
        )


def _line(job: jobs.Job) -> output.Row:
    return job_rows.job_line(job_rows.job_row(job, NOW))


def test_a_job_as_a_line() -> None:
    line = _line(JOB)
    assert [line[column.name] for column in job_tables.JOB_COLUMNS] == [
        "123",
        "demo",
        "RUNNING",
        "",
        "01:00:00",
        "02:00:00",
        None,
        None,
        None,
        7,
    ]
    alert = jobs.Alert(rule="stalled", attempt=0, since=NOW, detail="no new line for 34 minutes")
    stalled = dataclasses.replace(JOB, alerts=(alert,))
    assert _line(stalled)["reason"] == "alert: stalled"
    assert job_rows.job_row(stalled, NOW)["alerts"] == [
        {"rule": "stalled", "since": NOW, "detail": "no new line for 34 minutes"}
    ]
    unknown = dataclasses.replace(JOB, job_id=None, state=jobs.JobState.SUBMIT_UNKNOWN)
    assert _line(unknown)["job_id"] is None


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 3600),
        ({"state": jobs.JobState.PENDING}, None),
        ({"started_at": None}, None),
        ({"started_at": NOW + datetime.timedelta(seconds=5)}, 0),
        ({"state": jobs.JobState.FAILED}, None),
        (
            {"state": jobs.JobState.FAILED, "ended_at": NOW - datetime.timedelta(minutes=59)},
            60,
        ),
    ],
    ids=["runs", "waits", "no start", "clocks differ", "end unknown", "ended"],
)
def test_elapsed(changes: dict[str, object], seconds: int | None) -> None:
    assert job_rows.elapsed_seconds(dataclasses.replace(JOB, **changes), NOW) == seconds


def test_an_attempt_and_an_event() -> None:
    attempt = jobs.Attempt(number=1, state=jobs.JobState.FAILED, exit_code=3, exit_signal=0)
    row = job_rows.attempt_row(attempt)
    assert (row["number"], row["state"], row["exit"]) == (1, "FAILED", "3:0")
    assert set(output.column_names(job_tables.ATTEMPT_COLUMNS)) <= set(row)
    event = job_rows.event_row(jobs.JobEvent(at=NOW, kind="note", source="user", detail="x"))
    assert (event["at"], event["state"], event["detail"]) == (NOW, None, "x")


def _task(number: int, state: jobs.JobState, **fields: Any) -> jobs.Job:
    changes = {"row": 10 + number, "job_id": f"41_{number}", "array_job_id": "41", **fields}
    return dataclasses.replace(JOB, array_task_id=number, state=state, **changes)


def test_tasks_with_the_same_state_are_one_line() -> None:
    state = jobs.JobState
    tasks = [
        *(_task(n, state.PENDING, reason="Priority", started_at=None) for n in (7, 6, 5, 3)),
        _task(4, state.RUNNING, node_list="n2"),
        _task(2, state.RUNNING, node_list="n1"),
        _task(1, state.FAILED, exit_code=3, node_list="n1"),
        _task(0, state.FAILED, exit_code=3, node_list="n2"),
        JOB,
    ]
    lines = job_rows.folded_rows(tasks, NOW)
    shown = [(line["job_id"], line["state"], line["node_list"], line["row"]) for line in lines]
    assert shown == [
        ("41_[3,5-7]", "PENDING", None, ""),
        ("41_4", "RUNNING", "n2", 14),
        ("41_2", "RUNNING", "n1", 12),
        ("41_[0-1]", "FAILED", None, "@10-11"),
        ("123", "RUNNING", None, 7),
    ]
