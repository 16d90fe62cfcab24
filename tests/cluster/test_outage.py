"""Slurm's daemons stop, hang and return: nothing is lost, and outdated states are reported."""

from __future__ import annotations

import datetime
import re
import subprocess
import time
from typing import Any

import pytest

from tests.cluster import faults
from tests.cluster import lab as cluster
from tests.cluster import site as sites

#: `slurm.Client` gives squeue this long; the database and Python's start come on top.
STATUS_BOUND_SECONDS = 60 + 60
#: After a failure sacct is left alone for so long.
SACCT_REST_SECONDS = 60


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The last line on stderr; progress may stand before it, when something takes its time."""
    return done.stderr.splitlines()[-1]


def status(site: sites.Site, *options: str) -> tuple[list[dict[str, Any]], str]:
    """The jobs in `status`, and its messages."""
    items = site.items("status", *options)
    return items, site.run("status", "--no-refresh").stderr


def run_folders(site: sites.Site) -> set[str]:
    return {folder.name for folder in site.lab.path(f"{site.home}/runs").iterdir()}


def test_slurmctld_is_down(lab: cluster.Lab, site: sites.Site) -> None:
    running = site.submit(site.shell("before", "sleep 300"))
    fresh = site.wait_state(running, "RUNNING")
    assert fresh["stale_since"] is None
    known_at = datetime.datetime.now(datetime.UTC)
    lab.stop("slurmctld")

    refused = site.run("submit", site.shell("during", "true"), check=5)
    assert refused.stdout == ""
    assert re.fullmatch(
        r"Error: sbatch could not reach slurmctld: Batch job submission failed: Unable to contact"
        r" slurm controller \(connect failure\)\. Nothing was submitted\. Submit again when"
        r" slurmctld answers\. \(stored as @\d+; `orchestrator resubmit --queue @\d+` submits it"
        r" as soon as Slurm accepts it\)",
        error_of(refused),
    )

    begun = time.monotonic()
    (lost, old), reported = status(site, "--refresh")
    assert time.monotonic() - begun < STATUS_BOUND_SECONDS
    assert (lost["state"], lost["job_id"], lost["stale_since"]) == ("NOT_SUBMITTED", None, None)
    assert (old["job_id"], old["state"]) == (running, "RUNNING")
    since = datetime.datetime.fromisoformat(old["stale_since"])
    assert abs((since - known_at).total_seconds()) < 60
    assert re.match(r"Stale since 20\S+: Slurm does not respond: \S", reported), reported
    unheard = error_of(site.run("refresh", check=5))
    assert unheard.startswith("Error: Slurm has not responded since 20"), unheard
    assert site.run("cancel", running, check=5).stdout == ""

    lab.start("slurmctld")
    job = site.wait_state(running, "RUNNING")
    assert (job["stale_since"], job["attempt"]) == (None, 0)
    (lost, old), reported = status(site, "--refresh")
    assert ((old["stale_since"], old["state"]), reported) == ((None, "RUNNING"), "")
    assert lost["state"] == "NOT_SUBMITTED"
    # Each folder has its row and each row its folder; the one job is in Slurm, the other is not.
    folders = run_folders(site)
    assert folders == {item["run_dir"].rpartition("/")[2] for item in (lost, old)}
    assert [row["JobID"] for row in lab.squeue() if row["Name"] in folders] == [running]
    assert site.submit(site.shell("after", "true")) != running


def test_first_query_while_slurmctld_is_down(lab: cluster.Lab, site: sites.Site) -> None:
    lab.stop("slurmctld")
    spec = site.shell("first", "true")
    refused = site.run("submit", spec, check=5)
    assert error_of(refused).startswith("Error: scontrol could not reach slurmctld: ")
    assert site.items("status", "--refresh") == []
    assert not lab.path(f"{site.home}/runs").exists() or not run_folders(site)
    site.run("render", spec)


def test_slurmctld_hangs(lab: cluster.Lab, site: sites.Site) -> None:
    running = site.submit(site.shell("hung", "sleep 300"))
    site.wait_state(running, "RUNNING")
    lab.pause("slurmctld")
    begun = time.monotonic()
    (job,) = site.items("status", "--refresh")
    assert time.monotonic() - begun < STATUS_BOUND_SECONDS
    assert (job["state"], job["stale_since"] is None) == ("RUNNING", False)
    lab.resume("slurmctld")
    assert site.job(running)["stale_since"] is None


@pytest.mark.slow
def test_squeue_hangs(lab: cluster.Lab, site: sites.Site) -> None:
    running = site.submit(site.shell("mute", "sleep 300"))
    site.wait_state(running, "RUNNING")
    with lab.faults(faults.Rule(command="squeue", stop_at="before", stop_seconds=300)) as wrong:
        begun = time.monotonic()
        (job,) = site.with_env(**wrong.env).items("status", "--refresh")
        assert time.monotonic() - begun < STATUS_BOUND_SECONDS
        assert job["stale_since"] is not None
        # While Slurm is known to be down, one query per interval is tried, not one per command.
        assert len(wrong.calls("squeue")) == 1


def test_slurmdbd_is_down(lab: cluster.Lab, site: sites.Site) -> None:
    if not lab.settings.cgroups:
        pytest.skip("no cgroup v1 on this machine, and the steps' rows tell nothing new then")
    lab.stop("slurmdbd")
    three = site.submit(site.shell("three", "exit 3"))
    hog = "srun python3 -c 'x = bytearray(400 << 20)'"
    killed = site.submit(site.shell("hog", hog, resources='mem = "100M"'))
    job = site.wait_state(three, "FAILED")
    assert (job["exit_code"], job["exit_signal"], job["stale_since"]) == (3, 0, None)
    job = site.wait_state(killed, "FAILED")
    assert job["stale_since"] is None
    lab.start("slurmdbd")
    # Only the row of its step shows the memory kill.
    job = site.wait_state(killed, "OUT_OF_MEMORY", SACCT_REST_SECONDS + 120)
    assert (job["exit_code"], job["exit_signal"]) == (1, 0)
    assert sites.details(job)[-1].startswith("FAILED -> OUT_OF_MEMORY")
    job = site.job(three)
    assert (job["state"], job["exit_code"]) == ("FAILED", 3)
    assert sum("FAILED" in line for line in sites.details(job)) == 1
    assert site.run("wait", three, killed, check=1, timeout_seconds=240).stdout == ""


def test_wait_survives_a_restart_of_slurmctld(lab: cluster.Lab, site: sites.Site) -> None:
    job_id = site.submit(site.shell("long", f"until [ -e {site.home}/go ]; do sleep 0.2; done"))
    site.wait_state(job_id, "RUNNING")
    waiting = site.popen("wait", job_id)
    lab.stop("slurmctld")
    # Reported by the queries of `wait`.
    lab.wait_for(
        lambda: site.items("status", "--no-refresh")[0]["stale_since"], 120, "it to be stale", 0.5
    )
    lab.write(f"{site.home}/go", "")
    lab.start("slurmctld")
    stdout, stderr = waiting.communicate(timeout=120)
    assert (waiting.returncode, stdout) == (0, "")
    assert re.search(rf" {job_id} COMPLETED on n\d\n$", stderr), stderr
