"""Problems of a controller: none while it is healthy or was stopped, otherwise the cause."""

from __future__ import annotations

import dataclasses
import datetime
import socket
from pathlib import Path

import pytest

from orchestrator import config, jobs
from orchestrator.controller.service import health
from orchestrator.controller.session import stores
from orchestrator.local import processes

NOW = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)
NEWEST = health.Pass(
    command="serve",
    host="login1",
    pid=7,
    since=NOW,
    last_pass_at=NOW,
    took_seconds=0.5,
    steps={"refresh": "", "notices": "no route to host"},
    next_pass_at=NOW + datetime.timedelta(seconds=60),
    failing_since=None,
)


def local(at: datetime.datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def configured(state_dir: Path) -> config.Configuration:
    environ = {"HOME": str(state_dir), "ORCHESTRATOR_STATE_DIR": str(state_dir)}
    return config.load(environ, state_dir)


def test_only_the_stored_file_is_loaded(tmp_path: Path) -> None:
    assert health.load(tmp_path) is None
    health.store(configured(tmp_path), NEWEST)
    assert health.load(tmp_path) == NEWEST
    assert [path.name for path in tmp_path.iterdir()] == ["controller.json"]
    (tmp_path / "controller.json").write_text('{"command": "of another version"}')
    assert health.load(tmp_path) is None


def test_late_passes() -> None:
    message = f"The controller's last pass was at {local(NOW)} (`serve`, process 7 on login1)."
    assert health.late_message(NEWEST, after(60 + health.LATE_SECONDS)) == ""
    assert health.late_message(NEWEST, after(61 + health.LATE_SECONDS)) == message
    assert health.late_message(dataclasses.replace(NEWEST, ended_at=NOW), after(10**6)) == ""
    by_ticks = dataclasses.replace(NEWEST, command="tick", next_pass_at=None)
    assert health.late_message(by_ticks, after(health.TICKS_LATE_SECONDS)) == ""
    assert health.late_message(by_ticks, after(health.TICKS_LATE_SECONDS + 1)) == message.replace(
        "serve", "tick"
    )


def test_a_controller_stores_only_its_own_end(tmp_path: Path) -> None:
    me = processes.this_process()
    health.store(configured(tmp_path), NEWEST)
    health.end(configured(tmp_path), after(5), me)
    assert health.load(tmp_path) == NEWEST
    mine = dataclasses.replace(NEWEST, host=me.host, pid=me.pid)
    health.store(configured(tmp_path), mine)
    health.end(configured(tmp_path), after(5), me)
    assert health.load(tmp_path) == dataclasses.replace(mine, next_pass_at=None, ended_at=after(5))


@pytest.mark.parametrize(
    "fate", ["never", "well", "failing", "killed", "stopped", "ended", "just now"]
)
def test_problems(tmp_path: Path, database_file: Path, fate: str) -> None:
    me = processes.this_process()
    who = f"`serve` (process {me.pid} on {socket.gethostname()}, since {local(NOW)})"
    with stores.Store(database_file) as store:
        holder = dataclasses.replace(me, start_ticks=me.start_ticks + 1) if fate == "killed" else me
        newest = NEWEST
        if fate == "failing":
            newest = dataclasses.replace(NEWEST, failing_since=NOW)
        elif fate == "ended":
            newest = dataclasses.replace(NEWEST, ended_at=NOW, next_pass_at=None)
        if fate != "never":
            hold(store, holder, given_back=fate == "ended")
            health.store(configured(tmp_path), newest)
        now = after({"stopped": 90, "just now": -1}.get(fate, 10))
        state = health.examine(store, tmp_path, now)
    assert (
        state.problems
        == {
            "never": ("The controller has never run here: `orchestrator serve` starts it.",),
            "well": (),
            # Renewed during the check.
            "just now": (),
            "failing": (f"Failing since {local(NOW)}: notices: no route to host",),
            "killed": (f"{who} was killed.",),
            "stopped": (f"{who} has not renewed its lease for 90 s.",),
            "ended": (f"The controller was stopped at {local(NOW)}.",),
        }[fate]
    )


def hold(store: stores.Store, holder: jobs.Submitter, *, given_back: bool) -> None:
    with store.writing() as work:
        work.leases.add()
        seen = work.leases.read(NOW)
        assert seen is not None
        fence = work.leases.take(seen, holder, command="serve", seconds=30, here=NOW)
        assert fence == 1
        if given_back:
            work.leases.give_back(fence)
