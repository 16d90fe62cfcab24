"""The controller process: its log and its health file, while running and at the end."""

from __future__ import annotations

import dataclasses
import datetime
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.controller.service import controller_process, health, passes
from orchestrator.controller.session import clock_check, contexts, stores
from orchestrator.local import processes
from tests import builders

NOW = datetime.datetime(2026, 11, 22, 3, 0, tzinfo=datetime.UTC)


@pytest.fixture
def context(tmp_path: Path, database_file: Path) -> Iterator[contexts.Context]:
    environ = {"HOME": str(tmp_path), "ORCHESTRATOR_STATE_DIR": str(tmp_path / "state")}
    with stores.Store(database_file) as store:
        yield builders.make_context(tmp_path, store, environ=environ, now=NOW)


def test_a_replaced_controller_stores_its_end(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = processes.this_process()
    state_dir = context.configuration.state_dir
    newest = health.Pass(
        command="serve",
        host=me.host,
        pid=me.pid,
        since=NOW,
        last_pass_at=NOW,
        took_seconds=0.5,
        steps={},
        next_pass_at=NOW,
        failing_since=None,
    )

    def replaced(there: contexts.Context, **fields: object) -> Iterator[passes.Outcome]:
        health.store(context.configuration, newest)
        there.reporter.info("Submitted batch job 7 (@3, x)")
        there.reporter.warn("@4 is not sent again: gone")
        raise errors.FencedError("Another controller took over")

    monkeypatch.setattr(passes, "run", replaced)
    log: list[controller_process.LogLine] = []
    with pytest.raises(errors.FencedError):
        controller_process.serve(context, log.append, interval_seconds=60, stand_by=False)
    ended = dataclasses.replace(newest, next_pass_at=None, ended_at=NOW)
    assert health.load(state_dir) == ended
    assert [(line.level, line.event, line.job) for line in log] == [
        ("info", "start", None),
        ("info", "message", "@3"),
        ("warning", "message", "@4"),
        ("error", "lease", None),
    ]


def test_the_warning_of_a_full_disk_names_the_file(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(passes, "run", lambda there, **more: iter(()))
    monkeypatch.setattr(health, "store", full)
    log: list[controller_process.LogLine] = []
    controller_process.tick(context, log.append)
    path = context.configuration.state_dir / "controller.json"
    assert [line.text for line in log] == [f"{path} cannot be written: No space left on device"]


def test_the_first_pass_without_the_database_is_stored_as_failed(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(there: contexts.Context) -> clock_check.Check:
        raise errors.DatabaseLockedError

    def stop(signals: controller_process.StopSignals, seconds: float) -> None:
        stored.append(health.load(context.configuration.state_dir))
        raise passes.Stopped

    stored: list[health.Pass | None] = []
    monkeypatch.setattr(clock_check, "check_pass", locked)
    monkeypatch.setattr(controller_process.StopSignals, "wait", stop)
    log: list[controller_process.LogLine] = []
    controller_process.serve(context, log.append, interval_seconds=60, stand_by=False)
    assert [line.text for line in log] == [
        "Controller running, one pass every 60 s.",
        "Another process has locked the database for too long.",
        "Controller stopped.",
    ]
    (newest,) = stored
    assert newest is not None and newest.failing_since == newest.last_pass_at == NOW
    assert newest.steps == {"database": "Another process has locked the database for too long."}
