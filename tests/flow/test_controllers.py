"""tick and serve: one controller acts, and one that lost its lease does nothing (rows 41, 42)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.flow.command_line import CommandLine, read_to
from tests.flow.conftest import FakeSlurm

#: Short, so that a test need not wait long for a lease to run out.
LEASE_SECONDS = 2
REFUSED = (
    "sbatch: error: Batch job submission failed: "
    "Required partition not available (inactive or drain)\n"
)


@pytest.fixture
def here(cli: CommandLine) -> CommandLine:
    cli.environ["ORCHESTRATOR_LEASE_SECONDS"] = str(LEASE_SECONDS)
    return cli


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate()


def serve(
    here: CommandLine, started: list[subprocess.Popen[str]], *argv: str
) -> subprocess.Popen[str]:
    process = here.start("serve", "--interval", "1", *argv)
    started.append(process)
    return process


def health(here: CommandLine) -> dict[str, Any]:
    return json.loads((here.state_dir / "controller.json").read_text())


def holder_message(here: CommandLine, pid: int) -> str:
    ((since,),) = here.rows("SELECT since FROM leases")
    return f"`serve` (process {pid} on {os.uname().nodename}, since {str(since)[:19]})"


def stop_between_transactions(here: CommandLine, process: subprocess.Popen[str]) -> None:
    """Stop a process at a moment when it does not keep others from writing to the database."""
    while True:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        if here.url:
            # A server keeps no other from writing to other rows.
            return
        connection = sqlite3.connect(here.database, timeout=0, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            assert "locked" in str(error)
            process.send_signal(signal.SIGCONT)
        finally:
            connection.close()


def test_one_controller_acts_and_sigterm_ends_it(
    here: CommandLine, fake_slurm: FakeSlurm, started: list[subprocess.Popen[str]]
) -> None:
    first = serve(here, started)
    assert first.stdout is not None
    assert read_to(first.stdout, "Controller running").endswith(
        " Controller running, one pass every 1 s.\n"
    )
    message = holder_message(here, first.pid)
    second = here("serve")
    assert (second.code, second.out) == (6, "")
    assert second.err == (
        f"Error: {message} is already running. Stop it first, or add --wait to stand by.\n"
    )
    tick = here("tick")
    assert tick.code == 6
    assert tick.err == (
        f"Error: {message} is already running and makes its own passes. Nothing was done.\n"
    )
    quiet = here("tick", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    here.wait_until(lambda: (here.state_dir / "controller.json").exists(), "a pass")
    (row,) = here("serve", "--status", "--json").items
    assert (row["healthy"], row["pid"], row["problems"]) == (True, first.pid, [])
    first.send_signal(signal.SIGTERM)
    assert first.stdout.readline().endswith(" Controller stopped.\n")
    assert first.wait(timeout=60) == 0
    # The lease was released: no other controller waits for it to expire.
    assert here("tick").code == 0
    assert here.rows("SELECT host, fence FROM leases") == [(None, 2)]


def test_suspended_controller_is_fenced_and_submits_nothing(
    here: CommandLine, fake_slurm: FakeSlurm, started: list[subprocess.Popen[str]]
) -> None:
    """Stopped between the stored intent and sbatch: the worst moment there is."""
    fake_slurm.fail("sbatch", stderr=REFUSED)
    for name in ("RESEND_MIN_SECONDS", "SUBMIT_GRACE_SECONDS"):
        # Its submission is searched for during this time, and sent again after that.
        here.environ[f"ORCHESTRATOR_{name}"] = "1"
    spec = here.spec('[job]\nname = "demo"\ntime_limit = "5"\n[launch]\ncommand = "true"\n')
    assert here("submit", "--queue", spec).code == 0
    sent = len(fake_slurm.calls("sbatch"))
    first = serve(here, started, "--wait")
    assert first.stdout is not None
    read_to(first.stdout, "Controller running")
    here.wait_until(
        lambda: (
            here.rows("SELECT 1 FROM jobs WHERE state = 'SUBMITTING'")
            or len(fake_slurm.calls("sbatch")) > sent
        ),
        "a try",
    )
    stop_between_transactions(here, first)
    second = serve(here, started, "--wait")
    assert second.stdout is not None
    read_to(second.stdout, "Controller running")
    first.send_signal(signal.SIGCONT)
    fenced = read_to(first.stdout, "error: ")
    assert "Another controller took over: " in fenced
    here.wait_until(
        lambda: here.rows("SELECT 1 FROM jobs WHERE state = 'PENDING'"), "the job in Slurm"
    )
    assert len({job["name"] for job in fake_slurm.jobs()}) == len(fake_slurm.jobs()) == 1


def test_suspended_controller_resumes_with_one_pass(
    here: CommandLine, fake_slurm: FakeSlurm, started: list[subprocess.Popen[str]]
) -> None:
    spec = here.spec('[job]\nname = "demo"\ntime_limit = "5"\n[launch]\ncommand = "true"\n')
    assert here("submit", spec).code == 0
    process = serve(here, started, "--log-format", "json")
    here.wait_until(lambda: len(fake_slurm.calls("squeue")) >= 2, "two passes")
    process.send_signal(signal.SIGSTOP)
    before = len(fake_slurm.calls("squeue"))
    # No other controller took over: it continues with the same fence.
    time.sleep(LEASE_SECONDS * 2)
    pass_before = health(here)["last_pass_at"]
    process.send_signal(signal.SIGCONT)
    here.wait_until(lambda: health(here)["last_pass_at"] != pass_before, "the next pass")
    assert len(fake_slurm.calls("squeue")) - before <= 2
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in lines] == ["start", "stop"]
    assert set(lines[0]) == {"time", "level", "event", "step", "job", "text"}


def test_controller_waits_while_slurm_does_not_answer(
    here: CommandLine, fake_slurm: FakeSlurm
) -> None:
    spec = here.spec('[job]\nname = "demo"\ntime_limit = "5"\n[launch]\ncommand = "true"\n')
    assert here("submit", spec).code == 0
    text = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    fake_slurm.fail("squeue", stderr=f"{text}\n", times=9)
    done = here("tick")
    assert done.code == 5
    assert done.err.startswith("refresh: Slurm has not answered since ")
    assert done.err.endswith(" steps failed: refresh\n")
    status = here("serve", "--status")
    assert status.code == 1 and "Failing since " in status.err
    fake_slurm.heal()
    # The next tick may come before Slurm may be asked again.
    here.wait_until(lambda: here("tick").code == 0, "a good answer")
    assert here("serve", "--status").code == 0
