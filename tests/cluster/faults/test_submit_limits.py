"""Rows 18, 22 and 23: DenyOnLimit, a full queue, a full disk."""

from __future__ import annotations

import re

import pytest

from tests.cluster import configuration
from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.cluster.faults import rows

QUICK = "resend_min_seconds = 2\nresend_max_seconds = 4\n"
STATE = f"{configuration.LAB}/ctld"
ASIDE = "/run/ctld-aside"


def must(lab: cluster.Lab, *argv: str) -> None:
    lab.run(argv, user="root").check_returncode()


def test_row_18_qos_with_deny_on_limit(row: rows.Row) -> None:
    lab = row.site.lab
    sacctmgr = ("sacctmgr", "-iQ")
    must(lab, *sacctmgr, "add", "qos", "deny")
    must(lab, *sacctmgr, "modify", "qos", "deny", "set", "MaxWall=2", "Flags=DenyOnLimit")
    must(lab, *sacctmgr, "modify", "user", "alice", "set", "qos+=deny")
    try:
        output = row.refused("long", "--qos=deny")
        assert output.startswith("Error: Slurm refused the job: QOSMaxWallDurationPerJobLimit; ")
        assert output.endswith("Correct it and submit again. (stored as @1)\n")
        # It can never go, so it does not wait.
        output = row.refused("queued", "--qos=deny", "--queue")
        assert output.endswith("Correct it and submit again. (stored as @2)\n")
        assert [job["resend_at"] for job in row.jobs()] == [None, None]
        fits = row.submit("fits", "true", "--qos=deny", job='time_limit = "1"')
        row.site.wait_state(fits, "COMPLETED")
    finally:
        must(lab, *sacctmgr, "modify", "user", "alice", "set", "qos-=deny")
        must(lab, *sacctmgr, "delete", "qos", "deny")


def fill(lab: cluster.Lab, row: rows.Row) -> list[str]:
    """Fill the queue with three jobs that run."""
    # Up to 24.11 one less than MaxJobCount fits in.
    most = 3 if lab.settings.release == "26.05" else 4
    lab.reconfigure(extra=(f"MaxJobCount={most}",), min_job_age_seconds=2)
    lab.wait_for(lambda: not lab.squeue(), 120, "the earlier jobs to be forgotten", 0.5)
    ids = [row.submit(f"busy-{number}", "sleep 300") for number in range(3)]
    for job_id in ids:
        row.site.wait_state(job_id, "RUNNING")
    return ids


def test_row_22_queue_is_full(lab: cluster.Lab, row: rows.Row) -> None:
    busy = fill(lab, row)
    row.most["sbatch"] += 1
    blocked = row.site.popen("submit", row.shell("fourth", "true"))
    # sbatch waits and asks again by itself; other commands go on meanwhile.
    lab.wait_for(lambda: len(row.seen.calls("sbatch")) == 4, 120, "sbatch to be called", 0.2)
    shown = row.site.items("status", "--refresh")
    assert [job["state"] for job in shown] == ["SUBMITTING", *["RUNNING"] * 3]
    assert row.site.run("cancel", busy[0]).stdout == f"{busy[0]} is CANCELLED\n"
    stdout, stderr = blocked.communicate(timeout=120)
    assert blocked.returncode == 0, stderr
    assert "Submitting (sbatch) ..." in stderr
    match = re.fullmatch(r"Submitted batch job (\d+) \(@4, fourth\)\n", stdout)
    assert match is not None, stdout
    row.site.wait_state(match[1], "COMPLETED")


@pytest.mark.slow
def test_row_22_queue_stays_full(lab: cluster.Lab, row: rows.Row) -> None:
    fill(lab, row)
    row.most["sbatch"] += 1
    spec = row.shell("fourth", "true")
    done = row.site.run("submit", "--queue", spec, timeout_seconds=400)
    why = "Slurm temporarily unable to accept job"
    if lab.settings.release == "26.05":
        why = "MaxJobCount limit reached"
    assert done.stdout.startswith(f"@4 deferred: {why}; next try at ")


def test_row_23_disk_of_slurmctld_is_full(lab: cluster.Lab, row: rows.Row) -> None:
    quick = sites.Site.make(lab, row.site.home, more=QUICK).with_env(**row.site.env)
    running = row.submit("before", "sleep 300")
    row.site.wait_state(running, "RUNNING")

    def move(command: str) -> None:
        lab.stop("slurmctld")
        must(lab, "sh", "-ec", command)
        lab.start("slurmctld")
        lab.wait_for(
            lambda: lab.run(["squeue", "-h"], user="root").returncode == 0, 120, "slurmctld"
        )

    small = f"mount -t tmpfs -o size=2m,mode=755 tmpfs {STATE}"
    move(f"cp -a {STATE} {ASIDE}; {small}; cp -a {ASIDE}/. {STATE}")
    try:
        lab.run(["dd", "if=/dev/zero", f"of={STATE}/filler", "bs=4k"], user="root")
        message = row.refused("refused")
        assert message.startswith("Error: Slurm refused the job for now: ")
        assert "I/O error writing script/environment to file. Submit it again later." in message
        output = quick.run("submit", "--queue", row.shell("queued", "true")).stdout
        words = "deferred: I/O error writing script/environment to file"
        assert output.startswith(f"@3 {words}; next try at ")
        assert row.site.job(running)["state"] == "RUNNING"
        must(lab, "rm", f"{STATE}/filler")
        # Sent when it is due, by the one who waits for it; on a slow machine it was due before too.
        quick.run("wait", "@3")
        tries = row.seen.calls("sbatch")
        row.most["sbatch"] = len(tries)
        assert [number for number, item in enumerate(tries, 1) if not item.real_rc] == [
            1,
            len(tries),
        ]
    finally:
        lab.run(["rm", "-f", f"{STATE}/filler"], user="root")
        move(f"cp -a {STATE}/. {ASIDE}; umount {STATE}; cp -a {ASIDE}/. {STATE}; rm -r {ASIDE}")
    assert row.site.job(running)["state"] == "RUNNING"
