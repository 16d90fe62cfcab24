"""Checks of running jobs for alerts: rarely, a few at a time, each alert stored once."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from db.tables.jobs import SUBMISSIONS
from orchestrator import jobs, specs
from orchestrator.controller.diagnosis import alerts
from orchestrator.controller.session import contexts, stores
from tests import builders


@pytest.fixture
def context(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[contexts.Context]:
    # On a machine that is busy with other tests a second may read nothing.
    monkeypatch.setattr(alerts, "READING_SECONDS", 600.0)
    # The files' age is measured by the clock that stamps them, so this one must agree with it now.
    now = datetime.datetime.now(datetime.UTC)
    with stores.Store(database_url) as store:
        yield builders.make_context(tmp_path, store, reporter=builders.NO_MESSAGES, now=now)


def later(context: contexts.Context, seconds: float) -> contexts.Context:
    now = context.clock.now() + datetime.timedelta(seconds=seconds)
    return builders.with_clock(context, now=now)


def add(
    context: contexts.Context, number: int, *losses: float, silent_minutes: float = 0
) -> jobs.Job:
    token = f"abcd{number:08}"
    folder = context.folder / token
    folder.mkdir()
    (folder / "log").write_text("")
    lines = [
        json.dumps({"name": "loss", "value": value, "step": step})
        for step, value in enumerate(losses)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    now = context.clock.now()
    at = now.timestamp() - silent_minutes * 60
    for name in ("log", "metrics.jsonl"):
        os.utime(folder / name, (at, at))
    record = builders.make_submission(1, now, token=token, run_dir=str(folder))
    begun = now - datetime.timedelta(hours=5)
    fields = {"job_id": str(number), "stdout_path": str(folder / "log"), "started_at": begun}
    with context.store.writing() as work:
        return work.jobs.add_submission(record, state=jobs.JobState.RUNNING, **fields)[0]


def alerts_of(context: contexts.Context, job: jobs.Job) -> tuple[list[str], list[str]]:
    """Return the current alerts of a job and the alerts in its history."""
    with context.store.reading() as work:
        stored = work.jobs.get(job.row)
        events = work.events.of_job(job.row)
    assert stored is not None
    lines = [f"{event.kind} {event.detail}" for event in events if event.source == "alerts"]
    return [alert.rule for alert in stored.current_alerts], lines


def test_stalled_job_and_nan_loss(context: contexts.Context) -> None:
    well = add(context, 1, 2.0)
    stalled = add(context, 2, 2.0, silent_minutes=34)
    lost = add(context, 3, 2.0, float("nan"))
    assert alerts.check_running(context) == 2
    assert alerts_of(context, well) == ([], [])
    line = "alert stalled: no output in its log or metrics for 34 minutes"
    assert alerts_of(context, stalled) == (["stalled"], [line])
    assert alerts_of(context, lost) == (["nan_loss"], ["alert nan_loss: loss is NaN at step 1"])
    # Within a minute no check follows.
    (Path(stalled.run_dir) / "log").write_text("it goes on\n")
    assert alerts.check_running(later(context, 59)) == 0
    assert alerts_of(context, stalled)[0] == ["stalled"]
    assert alerts.check_running(later(context, 61)) == 1
    assert alerts_of(context, stalled) == ([], [line, "recovered no longer stalled"])
    assert alerts_of(context, lost)[0] == ["nan_loss"]


def test_no_alert_if_clocks_differ(context: contexts.Context) -> None:
    job = add(context, 1, 2.0)
    assert alerts.check_running(later(context, 3600)) == 0, (
        "its files were written just now, by their own"
    )
    # One that is late: the files are of the future, and silent for as long as they are.
    silent = add(context, 2, 2.0, silent_minutes=34)
    assert alerts.check_running(later(context, -7200)) == 1
    assert (alerts_of(context, job)[0], alerts_of(context, silent)[0]) == ([], ["stalled"])


def test_many_jobs_are_checked_in_turn(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "JOBS_PER_CHECK", 2)
    some = [add(context, number, silent_minutes=34) for number in range(1, 6)]
    ended = add(context, 6, silent_minutes=34)
    with context.store.writing() as work:
        work.jobs.change(ended.row, {"state": jobs.JobState.COMPLETED, "settled": True})
    changed = [alerts.check_running(later(context, 60 * turn)) for turn in range(4)]
    assert changed == [2, 2, 1, 0], "the newest first, then round again"
    assert all(alerts_of(context, job)[0] == ["stalled"] for job in some)
    assert alerts_of(context, ended) == ([], [])
    with context.store.reading() as work:
        assert len(work.jobs.find(jobs.JobQuery(below=some[2].row))) == 2


def test_spec_of_another_version_does_not_prevent_alerts(context: contexts.Context) -> None:
    other = add(context, 1, silent_minutes=34)
    with context.store._database.writing() as db:
        db.execute(sa.update(SUBMISSIONS).values(spec='{"job": {"colour": "red"}}'))
    stalled = add(context, 2, silent_minutes=34)
    assert alerts.check_running(context) == 2
    assert [alerts_of(context, job)[0] for job in (other, stalled)] == [["stalled"], ["stalled"]]


@pytest.mark.parametrize(
    ("launch", "node_list", "hosts"),
    [
        ({"framework": "lightning", "script": "a.py"}, "n[2,10]", ["n2", "n10"]),
        ({"launcher": "srun", "script": "a.py"}, "n[2,10]", ["n2", "n10"]),
        ({"launcher": "torchrun", "script": "a.py"}, "n[2,10]", ["n10", "n2"]),
        ({"rendezvous": "static", "script": "a.py"}, "n[2,10]", ["n2", "n10"]),
        ({"command": "srun ./a"}, "n[2,10]", []),
        ({"command": "srun ./a"}, "n[1-2]", ["n1", "n2"]),
    ],
)
def test_hosts_are_in_the_order_of_their_ranks(
    launch: dict[str, str], node_list: str, hosts: list[str]
) -> None:
    flags: dict[str, object] = {f"launch.{key}": value for key, value in launch.items()}
    flags |= {"job.name": "a", "resources.nodes": 2, "resources.ntasks_per_node": 2}
    spec = specs.load(None, flags=flags, folder=None)
    assert alerts._hosts(builders.make_job(node_list=node_list), spec) == hosts
