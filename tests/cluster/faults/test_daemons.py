"""Rows 11, 13 and 16: slurmctld starts without state, the accounts hang, munge is down or hangs."""

from __future__ import annotations

import re
import time

import pytest

from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.cluster.faults import rows

#: slurmdbd that hangs: sacct gives up after 40 s (measured), and is given 90; Python on top.
ACCOUNTS_HANG_SECONDS = 90 + 15
#: `slurm.Client` gives each of Slurm's other commands this long; our own work on top.
BOUND_SECONDS = 60 + 60
#: How long `wait` waits for the details of a known end.
DETAILS_SECONDS = 30
#: What sbatch may take, which needs no accounts: less than they would keep it.
QUICK_SECONDS = 35
#: Without munge slurmctld cannot reach its nodes, and marks them down after this time.
LONG_SLURMD_TIMEOUT = ("SlurmdTimeout=600",)
#: Twice MessageTimeout.
HANG_SECONDS = 10
#: After a failure sacct is left alone for so long.
SACCT_REST_SECONDS = 60


def test_row_11_slurmctld_loses_all_its_state(lab: cluster.Lab, row: rows.Row) -> None:
    sites.Site.make(lab, row.site.home, more="submit_grace_seconds = 4\n")
    # IDs begin here and after the loss, which so hands out those of our jobs again.
    lab.give_new_job_ids()
    lab.wipe_slurmctld_state()
    done = row.submit("done", "exit 3")
    runs = row.submit("runs", "sleep 300")
    waits = row.submit("waits", "true", sbatch="hold = true")
    assert [int(runs), int(waits)] == [int(done) + 1, int(done) + 2]
    row.site.wait_state(done, "FAILED")
    row.site.wait_state(runs, "RUNNING")
    lab.wait_for(lambda: len(lab.sacct(done)) > 1, 120, "the accounts to have the first end", 0.5)
    lab.wipe_slurmctld_state()
    for _ in (done, runs):
        # Not where the first jobs ran: that slurmd starts nothing under their IDs any more.
        lab.run(["sbatch", "--parsable", "-wn4", "--wrap", "sleep 300"], cwd=row.site.home)
    fresh = row.submit("fresh", "true")
    assert fresh == waits, "the ID is given again"
    row.site.run("wait", "fresh")
    ends = {
        name: row.site.wait_state(name, ("FAILED", "CANCELLED", "LOST", "COMPLETED"), 120)
        for name in ("done", "runs", "waits", "fresh")
    }
    assert (ends["done"]["state"], ends["done"]["exit_code"]) == ("FAILED", 3)
    assert ends["fresh"]["state"] == "COMPLETED"
    for name in ("runs", "waits"):
        # A slurmctld without state makes slurmdbd end running jobs: CANCELLED in sacct.
        assert ends[name]["state"] in ("CANCELLED", "LOST"), ends[name]
        if ends[name]["state"] == "LOST":
            why = f"Slurm has assigned job ID {ends[name]['job_id']} to another job"
            assert ends[name]["reason"].startswith(why)
    # An ID on the command line means the newest job that has it.
    assert row.site.job(waits)["name"] == "fresh"

    def running() -> set[str]:
        return {item["JobID"] for item in lab.squeue("-t", "running", "-u", "alice")}

    lab.wait_for(lambda: running() == {done, runs}, 120, "the others' jobs to run")
    for word in ("runs", "waits"):
        assert f"had already ended: {ends[word]['state']}" in row.site.run("cancel", word).stdout
    assert running() == {done, runs}, "the others' jobs were not touched"


def seconds_of(site: sites.Site, *argv: str) -> float:
    begun = time.monotonic()
    site.run(*argv, timeout_seconds=300)
    return time.monotonic() - begun


@pytest.mark.parametrize("daemon", ["slurmdbd", pytest.param("mariadbd", marks=pytest.mark.slow)])
@pytest.mark.early
def test_row_13_slurmdbd_or_database_hangs(lab: cluster.Lab, row: rows.Row, daemon: str) -> None:
    runs = row.submit("runs", "sleep 300")
    row.site.wait_state(runs, "RUNNING")
    lab.pause(daemon)
    begun = time.monotonic()
    three = row.submit("three", "exit 3")
    assert time.monotonic() - begun < QUICK_SECONDS, "sbatch needs no accounts"
    lab.wait_for(lambda: lab.job_state(three) == "FAILED", 120, "the end", 0.5)
    # The first refresh after an end calls sacct and waits for it.
    assert seconds_of(row.site, "refresh") < ACCOUNTS_HANG_SECONDS
    asked = len(row.seen.calls("sacct"))
    assert asked == 1
    # From now on sacct is left alone for a while.
    begun = time.monotonic()
    (job,) = row.site.items("show", three)
    assert (job["state"], job["exit_code"], job["stale_since"]) == ("FAILED", 3, None)
    for argv in (("status",), ("show", runs), ("logs", three), ("metrics", three)):
        assert seconds_of(row.site, *argv) < ACCOUNTS_HANG_SECONDS, argv
    rests = int((time.monotonic() - begun) / SACCT_REST_SECONDS)
    assert len(row.seen.calls("sacct")) <= asked + rests
    # What must see Slurm's word now asks once more; `wait` gives the details of an end some time.
    begun = time.monotonic()
    processes = {row.site.popen("cancel", runs): 0, row.site.popen("wait", three): 1}
    for process, code in processes.items():
        output = process.communicate(timeout=300)
        assert process.returncode == code, output
    assert time.monotonic() - begun < DETAILS_SECONDS + ACCOUNTS_HANG_SECONDS
    lab.resume(daemon)
    # I5 of the check after this test: the final states in the accounts and in ours agree.


def test_row_16_munge_is_down(lab: cluster.Lab, row: rows.Row) -> None:
    lab.reconfigure(extra=LONG_SLURMD_TIMEOUT)
    runs = row.submit("runs", "sleep 300")
    row.site.wait_state(runs, "RUNNING")
    lab.stop("munged")
    message = row.refused("unsent").splitlines()[-1]
    assert re.match(r"Error: sbatch could not .*[Mm]unge.* Nothing was submitted. ", message), (
        message
    )
    (job,) = row.site.items("status", "--refresh", "--name", "runs")
    assert (job["state"], job["stale_since"] is None) == ("RUNNING", False)
    output = row.site.run("status", "--no-refresh").stderr
    assert re.match(r"Stale since 20\S+: Slurm does not respond: .*[Mm]unge", output), output
    assert row.site.run("cancel", runs, check=5).stdout == ""
    lab.start("munged")
    job = row.site.wait_state(runs, "RUNNING")
    assert job["stale_since"] is None
    row.site.wait_state(row.submit("sent", "true"), "COMPLETED")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "until_sbatch_is_given_up", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_row_16_munge_hangs(
    lab: cluster.Lab, row: rows.Row, until_sbatch_is_given_up: bool
) -> None:
    lab.reconfigure(extra=LONG_SLURMD_TIMEOUT)
    runs = row.submit("runs", "sleep 300")
    row.site.wait_state(runs, "RUNNING")
    lab.pause("munged")
    sends = row.site.popen("submit", row.shell("sent", "true"), "--parsable")
    row.most["sbatch"] += 1
    if until_sbatch_is_given_up:
        begun = time.monotonic()
        (job,) = row.site.items("status", "--refresh", "--name", "runs")
        assert time.monotonic() - begun < BOUND_SECONDS
        assert (job["state"], job["stale_since"] is None) == ("RUNNING", False)
        stdout, stderr = sends.communicate(timeout=240)
        assert (sends.returncode, stdout) == (5, ""), stderr
        assert re.search(r"sbatch timed out after 18\d s", stderr), stderr
        assert "Do not submit it again" in stderr
        lab.resume("munged")
    else:
        lab.wait_for(lambda: len(row.seen.calls("sbatch")) == 2, 120, "sbatch to be called", 0.5)
        looks = row.site.popen("refresh")
        # Longer than a message may take.
        begun = time.monotonic()
        lab.wait_for(lambda: time.monotonic() - begun > HANG_SECONDS, 120, "munge to hang", 0.5)
        assert (sends.poll(), looks.poll()) == (None, None)
        lab.resume("munged")
        output = looks.communicate(timeout=120)
        assert looks.returncode == 0, output
        stdout, stderr = sends.communicate(timeout=120)
        if sends.returncode == 5:
            # "Unexpected missing socket error": the connection is older than slurmctld waits.
            assert "Slurm may or may not have the job" in stderr
        else:
            assert (sends.returncode, stdout.strip().isdigit()) == (0, True), stderr
    ended = row.site.wait_state("sent", ("COMPLETED", "NOT_SUBMITTED"), 240)
    journal = lab.read(f"{row.site.home}/journal").splitlines()
    ran = [line for line in journal if line.split()[1].startswith("sent.")]
    assert len(ran) == (1 if ended["state"] == "COMPLETED" else 0)
    assert row.site.job(runs)["stale_since"] is None
