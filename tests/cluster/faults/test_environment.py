"""Rows 39, 48 and 50: the user's environment, a wrong clock, and access of other users."""

from __future__ import annotations

import dataclasses
import time

import pytest

from tests.cluster.faults import rows

HOSTILE = {
    "SBATCH_PARTITION": "nosuch",
    "SBATCH_TIMELIMIT": "99-00",
    "SBATCH_JOB_NAME": "evil",
    "SBATCH_ARRAY_INX": "0-5",
    "SBATCH_WCKEY": "evil",
    "SQUEUE_USERS": "root",
    "SQUEUE_STATES": "FAILED",
    "SQUEUE_NAMES": "evil",
    "SQUEUE_FORMAT2": "JobID",
    "SACCT_FORMAT": "JobID",
    "SCANCEL_NAME": "evil",
    "SCANCEL_STATE": "PENDING",
    "SLURM_CLUSTERS": "bogus",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_JOB_ID": "99",
    "TZ": "Asia/Tokyo",
    "LANG": "ja_JP.UTF-8",
    "LC_ALL": "ja_JP.UTF-8",
}
#: Debian's; its folder differs by machine.
FAKETIME = "/usr/lib/*/faketime/libfaketime.so.1"


def test_row_39_hostile_environment(row: rows.Row) -> None:
    hostile = dataclasses.replace(row, site=row.site.with_env(**HOSTILE))
    good = hostile.submit("good", "echo done")
    cancelled = hostile.submit("cancelled", "sleep 300")
    job = hostile.site.wait_state(good, "COMPLETED")
    assert (job["partition"], job["time_limit_seconds"], job["exit_code"]) == ("gpu", 300, 0)
    hostile.site.wait_state(cancelled, "RUNNING")
    assert hostile.site.run("cancel", cancelled).stdout == f"{cancelled} is CANCELLED\n"
    # bash first warns that the node lacks the locale: the job has the user's environment.
    assert hostile.site.run("logs", good).stdout.splitlines()[-1] == "done"
    plain = row.site.job(good)
    times = ("submitted_at", "started_at", "ended_at")
    assert [plain[at] for at in times] == [hostile.site.job(good)[at] for at in times]
    assert 0 <= plain["elapsed_seconds"] < 300


def test_row_48_clock_ten_minutes_off(row: rows.Row) -> None:
    library = row.site.lab.run(["sh", "-c", f"ls {FAKETIME}"]).stdout.strip()
    if not library:
        pytest.skip("the lab's root has no libfaketime")

    def clock(offset: str) -> rows.Row:
        env = {"LD_PRELOAD": library, "FAKETIME": offset}
        return dataclasses.replace(row, site=row.site.with_env(**env))

    late, early = clock("-10m"), clock("+10m")
    # The job itself has the right time.
    right = {"environment": 'export = "none"'}
    # Intents from the future and from the past; each is then seen from the other clock.
    crossed = {
        early.submit("early", "sleep 1", **right): late,
        late.submit("late", "sleep 1", **right): early,
    }
    waits = early.submit("waits", "true", sbatch="hold = true", **right)
    for job_id, other in crossed.items():
        begun = time.monotonic()
        other.site.run("wait", job_id)
        assert time.monotonic() - begun < 120, "an end is seen by Slurm's clock, not by ours"
        seen = [at.site.job(job_id) for at in (late, row, early)]
        assert {job["state"] for job in seen} == {"COMPLETED"}
        assert len({job["started_at"] for job in seen}) == 1
        assert all(0 <= job["elapsed_seconds"] < 300 for job in seen)
    for at in (late, row, early, late):
        job = at.site.job(waits)
        assert (job["state"], job["stale_since"]) == ("PENDING", None)


def test_row_50_nothing_leaks_to_other_users(row: rows.Row) -> None:
    lab, home = row.site.lab, row.site.home
    secret = "s3cret-of-alice"
    lab.write(f"{home}/secrets", f"WANDB_API_KEY={secret}\n", mode=0o600)
    # A site where homes can be entered and the user's umask hides nothing.
    for folder in ("/home/alice", home):
        lab.path(folder).chmod(0o755)
    try:
        command = 'test -n "$WANDB_API_KEY" && echo seen && sleep 300'
        table = {"environment": f'secrets_file = "{home}/secrets"'}
        open_row = dataclasses.replace(row, site=row.site.with_env(GITHUB_TOKEN=secret))
        job_id = open_row.submit("secretive", command, **table)
        row.site.wait_state(job_id, "RUNNING")
        lab.wait_for(
            lambda: "seen" in row.site.run("logs", job_id).stdout, 120, "the job to have its secret"
        )
        places = lab.run(["find", f"{home}/state", f"{home}/runs"]).stdout.split()
        assert {path.rpartition("/")[2] for path in places} >= {"script.sbatch", f"{job_id}.out"}
        for path in places:
            denied = lab.run(["sh", "-c", 'test -r "$1" || test -w "$1"', "sh", path], user="bob")
            assert denied.returncode == 1, path
        asked = [
            ["squeue", "-O", "ALL:0"],
            ["squeue", "-a", "--json"],
            ["sacct", "-a", "-P", "-o", "ALL"],
            ["scontrol", "show", "job", "-d", job_id],
            ["scontrol", "write", "batch_script", job_id, "-"],
            ["sacct", "-j", job_id, "--env-vars"],
            ["sacct", "-j", job_id, "--batch-script"],
        ]
        for argv in asked:
            done = lab.run(argv, user="bob")
            assert secret not in done.stdout + done.stderr, argv
        for host in ("ctl", "n1", "n2", "n3", "n4"):
            assert secret not in lab.run(["ps", "-ef", "ww"], user="bob", host=host).stdout
        # Not even alice's own records have it.
        mine = lab.run(["sacct", "-j", job_id, "--env-vars"]).stdout
        script = lab.run(["scontrol", "write", "batch_script", job_id, "-"]).stdout
        assert "#SBATCH" in script
        assert secret not in mine + script
    finally:
        lab.path("/home/alice").chmod(0o700)
