"""Two controllers on two hosts, with PostgreSQL on a third."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import lab as cluster
from tests.cluster import postgres
from tests.cluster import site as sites
from tests.cluster.faults import rows

DATABASE_HOST = "n3"
HOSTS = ("n1", "n2")
#: Where the jobs run: neither a controller nor the database is cut off with them.
JOB = 'time_limit = "15"\nnodelist = "n4"\nqos = "tiny"'
#: What the QOS lets in at a time.
ROOM = 3
JOBS = 12
PROFILE = "resend_min_seconds = 1\nresend_max_seconds = 2\nlease_seconds = {lease}\n"


class Controller:
    """`orchestrator serve --wait` on a host."""

    def __init__(self, row: rows.Row, host: str) -> None:
        self.host = host
        self._lab = row.site.lab
        self._log = f"{row.site.home}/serve-{host}.log"
        words = "exec orchestrator serve --wait --interval 1 --log-format json"
        # Each host has its own disk, and so its own folder for what a controller keeps there.
        self.popen: subprocess.Popen[str] = self._lab.popen(
            ["sh", "-c", f"{words} >>{self._log} 2>&1"],
            host=host,
            env={**row.site.environ, "ORCHESTRATOR_STATE_DIR": f"{row.site.home}/state-{host}"},
            cwd=row.site.home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def lines(self, *events: str) -> list[dict[str, Any]]:
        """What it logged, of these events."""
        whole = self._lab.read_lines(self._log)
        result = [json.loads(line) for line in whole if line.startswith("{")]
        assert len(result) == len(whole), whole
        return [line for line in result if not events or line["event"] in events]

    def signal(self, number: int) -> None:
        self._lab.kill(self.popen, number)


@pytest.fixture
def row(request: pytest.FixtureRequest, lab: cluster.Lab, alice_home: str) -> Iterator[rows.Row]:
    """A site of alice's whose database is on a server."""
    with postgres.running(lab, DATABASE_HOST), lab.faults() as seen:
        url = postgres.make(lab, DATABASE_HOST, "alice", user="alice", password="sesame")
        profile = PROFILE.format(lease=request.getfixturevalue("lease_seconds"))
        site = sites.Site.make(lab, alice_home, more=profile, first=f'database = "{url}"\n')
        made = rows.Row(site=site.with_env(**seen.env), seen=seen)
        yield made
        made.check()


@pytest.fixture
def controllers(row: rows.Row) -> Iterator[list[Controller]]:
    made = [Controller(row, host) for host in HOSTS]
    yield made
    for controller in made:
        row.site.lab.kill_tree(controller.popen)
        controller.popen.wait()


@pytest.mark.parametrize("lease_seconds", [9, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.early
def test_second_controller_takes_over_and_first_is_fenced(
    row: rows.Row,
    controllers: list[Controller],
    lease_seconds: int,
    tell: Callable[[str], None],
) -> None:
    lab = row.site.lab
    lab.wait_for(
        lambda: (
            sorted(controller.lines("start", "standby") != [] for controller in controllers)
            == [True, True]
        ),
        90,
        "both controllers to say what they do",
    )
    (acting,) = [controller for controller in controllers if controller.lines("start")]
    (standing,) = [controller for controller in controllers if controller is not acting]
    (line,) = standing.lines()
    assert re.search(
        rf"on {acting.host}, since .*is running; waiting for it to end\.$", line["text"]
    )
    # Those that are let in wait for a file, so that the others queue up.
    command = f"until [ -e {row.site.home}/go ]; do sleep 0.2; done; sleep 3"
    spec = row.shell("short", command, job=JOB)
    for _ in range(JOBS):
        row.site.run("submit", "--queue", "--parsable", spec)
    lab.write(f"{row.site.home}/go", "")

    def begun() -> int:
        return len(lab.read_lines(f"{row.site.home}/journal"))

    def wait(happened: Callable[[], object], seconds: float, what: str) -> None:
        try:
            lab.wait_for(happened, seconds, what, 0.2)
        except TimeoutError as error:
            logs = [
                f"{controller.host}: {line}"
                for controller in controllers
                for line in controller.lines()[-15:]
            ]
            raise AssertionError("\n".join([str(error), *logs])) from error

    wait(lambda: begun() > ROOM, 120, "the first controller to send what waited")
    # Stopped at any point of a pass; when it continues, another controller has acted.
    acting.signal(signal.SIGSTOP)
    lab.cut(acting.host)
    cut_at, before = time.monotonic(), begun()
    wait(lambda: standing.lines("start"), 60, "the other to take over")
    tell(
        f"two controllers, lease {lease_seconds} s: taken over "
        f"{time.monotonic() - cut_at:.0f} s after the cut"
    )
    # Where the first was cut off within sbatch, that is first given its time: 180 s.
    wait(lambda: begun() > before + 1, 300, "the other to send what waits")
    lab.heal(acting.host)
    acting.signal(signal.SIGCONT)
    # Before that it may report that it could not renew its lease.
    wait(
        lambda: any(
            "Another controller took over" in item["text"] for item in acting.lines("lease")
        ),
        60,
        "the first to learn that it is fenced",
    )
    sent = [item for item in acting.lines("done")]
    wait(lambda: begun() == JOBS, 240, "all jobs to have run")
    assert acting.lines("done") == sent, "what is fenced does nothing"
    assert acting.lines()[-1]["event"] == "standby"
    assert "cannot be written" not in f"{acting.lines()} {standing.lines()}"
    # The other controller is stopped normally, and the first takes over again.
    standing.signal(signal.SIGTERM)
    wait(lambda: len(acting.lines("start")) == 2, 60, "the first to act again")
    assert standing.popen.wait(120) == 0

    def states() -> list[str]:
        return [job["state"] for job in row.site.items("status", "--all")]

    wait(lambda: states() == ["COMPLETED"] * JOBS, 120, "all jobs to be known to have ended")
    assert len(Path(lab.path(f"{row.site.home}/journal")).read_text().splitlines()) == JOBS
