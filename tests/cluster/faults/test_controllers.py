"""Rows 41 and 42: two controllers, and one that was stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import faults
from tests.cluster import site as sites
from tests.cluster.faults import rows

LEASE_SECONDS = 4
INTERVAL_SECONDS = 2
DRAINED = (
    "sbatch: error: Batch job submission failed: "
    "Required partition not available (inactive or drain)\n"
)


@pytest.fixture
def alice(row: rows.Row) -> sites.Site:
    return row.site.with_env(
        ORCHESTRATOR_LEASE_SECONDS=str(LEASE_SECONDS), ORCHESTRATOR_RESEND_MIN_SECONDS="1"
    )


@pytest.fixture
def serving(alice: sites.Site) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for popen in started:
        go_on(alice, popen)
        alice.lab.kill(popen)
        popen.communicate()


def go_on(alice: sites.Site, popen: subprocess.Popen[str]) -> None:
    """Let a stopped process go on, and the nsenter around it, which stops along with it."""
    alice.lab.kill(popen, signal.SIGCONT)
    popen.send_signal(signal.SIGCONT)


def serve(
    alice: sites.Site, serving: list[subprocess.Popen[str]], *argv: str
) -> subprocess.Popen[str]:
    popen = alice.popen("serve", "--interval", str(INTERVAL_SECONDS), *argv)
    serving.append(popen)
    assert popen.stdout is not None
    for line in popen.stdout:
        if f" Controller running, one pass every {INTERVAL_SECONDS} s." in line:
            return popen
    raise AssertionError(popen.communicate())


def health(alice: sites.Site) -> dict[str, Any]:
    (items,) = alice.items("serve", "--status")
    return items


def test_row_41_two_controllers(
    row: rows.Row, alice: sites.Site, serving: list[subprocess.Popen[str]]
) -> None:
    lab = alice.lab
    first = serve(alice, serving)
    # On its host, and on another: the database is a file.
    refused = alice.run("serve", check=6).stderr
    assert refused.endswith(" is already running. Stop it first, or add --wait to stand by.\n")
    for argv in (["serve"], ["serve", "--wait"], ["tick"]):
        done = lab.run(["orchestrator", *argv], env=alice.environ, cwd=alice.home, host="n1")
        assert done.returncode == 6
        assert done.stderr.endswith(
            " is already running, and this host is n1. Use that controller; a second host can "
            "stand by if the database is in PostgreSQL.\n"
        )
    # It is stopped while its sbatch is on its way, for longer than the lease.
    row.seen.set(faults.Rule(command="sbatch", run=False, rc=1, stdout="", stderr=DRAINED, times=1))
    row.most["sbatch"] = 2
    spec = row.shell("once", "true")
    alice.run("submit", "--queue", spec)
    row.seen.set(faults.Rule(command="sbatch", stop_at="before", stop_seconds=120))
    row.seen.wait_stopped()
    lab.kill(first, signal.SIGSTOP)
    second = serve(alice, serving, "--wait")
    row.seen.set()
    row.seen.go_on_all()
    go_on(alice, first)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 6
    assert "Another controller took over: `serve` (process " in err
    assert out.splitlines()[-1].partition(" error: ")[2] == err.removeprefix("Error: ").strip()
    done = row.site.wait_state("once", "COMPLETED")
    assert done["attempt"] == 0
    lab.kill(second, signal.SIGTERM)
    assert second.wait(timeout=120) == 0
    # Alice has jobs of other tests on this cluster too.
    mine = {record.job_id for record in row.records([]) if record.name.rpartition(".")[0] == "once"}
    assert mine == {done["job_id"]}


def test_row_42_suspended_controller(
    row: rows.Row, alice: sites.Site, serving: list[subprocess.Popen[str]]
) -> None:
    lab, home = alice.lab, alice.home
    job_id = row.submit("runs", f"until [ -e {home}/go ]; do sleep 0.2; done")
    alice.wait_state(job_id, "RUNNING")
    process = serve(alice, serving)
    before = health(alice)
    lab.kill(process, signal.SIGSTOP)
    # What would have been many passes; the job ends meanwhile.
    lab.write(f"{home}/go", "")
    time.sleep(3 * LEASE_SECONDS)
    lab.wait_for(lambda: lab.job_state(job_id) == "COMPLETED", 60, "the job's end")
    asked = len(row.seen.calls("squeue"))
    continued_at = time.monotonic()
    go_on(alice, process)

    def ended() -> bool:
        # Its lease may not be renewed yet.
        result = alice.run("serve", "--status", "--json", check=None).stdout
        (row,) = json.loads(result)["items"]
        return row["last_pass_at"] != before["last_pass_at"] and row["healthy"]

    lab.wait_for(ended, 60, "the next pass")
    due = 2 + (time.monotonic() - continued_at) / INTERVAL_SECONDS
    assert len(row.seen.calls("squeue")) - asked <= due, "no burst"
    after = health(alice)
    assert (after["pid"], after["fence"]) == (before["pid"], before["fence"]), "it still holds it"

    def seen() -> bool:
        # The pass that it was stopped in may have asked Slurm before.
        (job,) = alice.items("show", job_id, "--no-refresh")
        return job["state"] == "COMPLETED"

    lab.wait_for(seen, 60, "the job's end in the database")
    lab.kill(process, signal.SIGTERM)
    assert process.wait(timeout=120) == 0
