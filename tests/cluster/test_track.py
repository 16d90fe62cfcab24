"""`track JOBID` on a real Slurm: a job submitted without orchestrator is tracked."""

from __future__ import annotations

import re

from tests.cluster import lab as cluster
from tests.cluster import site as sites

#: Prints two numbers, one an attempt, and waits for a word before it ends.
BODY = """#!/bin/bash
#SBATCH --requeue
echo "Epoch Throughput: $((100 + ${SLURM_RESTART_COUNT:-0})).5 images/second"
echo oops >&2
until [ -e "go.${SLURM_RESTART_COUNT:-0}" ]; do sleep 0.2; done
exit "${1:-0}"
"""


def by_hand(site: sites.Site, *options: str, text: str = BODY, argument: str = "0") -> str:
    """Submit without orchestrator; the job ID."""
    path = f"{site.home}/hand.sh"
    site.lab.write(path, text)
    done = site.lab.run(
        ["sbatch", "--parsable", *options, path, argument], cwd=site.home, env=site.environ
    )
    done.check_returncode()
    return done.stdout.strip()


def let_go(site: sites.Site, attempt: int = 0) -> None:
    site.lab.write(f"{site.home}/go.{attempt}", "")


def running(site: sites.Site, job_id: str) -> None:
    site.lab.wait_for(lambda: site.lab.job_state(job_id) == "RUNNING", 120, f"{job_id} to run")


def test_tracked_job_reaches_its_final_state(site: sites.Site) -> None:
    job_id = by_hand(site, "-J", "hand made", "-o", "hand-%j.txt", "-e", "%x.err", argument="3")
    running(site, job_id)
    output = site.run("track", job_id, "--label", "by=hand").stdout
    assert output == f"Tracking {job_id} (@1, hand-made): RUNNING\n"
    assert site.run("track", job_id).stdout == f"{job_id} is already tracked as @1 (hand-made)\n"
    (row,) = site.items("status", "--name", "hand-made")
    assert (row["job_id"], row["state"], row["labels"]) == (job_id, "RUNNING", ["by=hand"])
    assert site.run("show", job_id, "--script").stdout == BODY
    assert site.run("logs", job_id, "--path").stdout == f"{site.home}/hand-{job_id}.txt\n"
    assert site.run("logs", job_id, "--stderr").stdout == "oops\n"
    let_go(site)
    site.run("wait", job_id, check=1)
    job = site.job(job_id)
    assert (job["state"], job["exit_code"], job["attempt"]) == ("FAILED", 3, 0)
    assert [item["value"] for item in site.items("metrics", job_id)] == [100.5]
    refused = site.run("resubmit", job_id, check=6)
    assert f"`orchestrator show {job_id} --script >FILE.sbatch`" in refused.stderr


def test_jobs_that_cannot_be_tracked(site: sites.Site) -> None:
    bobs = site.lab.run(["sbatch", "--parsable", "--wrap", "sleep 300"], user="bob").stdout.strip()
    refused = site.run("track", bobs, check=6)
    why = "only your own jobs can be tracked"
    assert refused.stderr == f"Error: job {bobs} belongs to bob: {why}\n"
    site.lab.run(["scancel", bobs], user="bob").check_returncode()
    unknown = site.run("track", "99999", check=4).stderr
    assert unknown.startswith("Error: squeue and sacct show no job 99999 of yours")
    assert "not a job ID of Slurm" in site.run("track", "a,b", check=4).stderr
    ours = site.submit(site.shell("ours", "true"))
    assert site.run("track", ours).stdout == f"{ours} is already tracked as @1 (ours)\n"
    site.run("wait", ours)


def test_requeues_of_a_tracked_job_are_attempts(site: sites.Site) -> None:
    job_id = by_hand(site, "--open-mode=append")
    running(site, job_id)
    site.run("track", job_id)
    site.run("metrics", job_id)
    assert site.run("requeue", job_id).stdout.startswith(f"{job_id} is ")
    site.wait_state(job_id, "RUNNING", 120)
    let_go(site, 1)
    site.run("wait", job_id)
    again = site.run("requeue", "--hold", job_id)
    assert again.stdout == f"{job_id} is PENDING (job requeued in held state)\n"
    site.run("release", job_id)
    let_go(site, 2)
    site.run("wait", job_id, timeout_seconds=240)
    job = site.job(job_id)
    assert (job["state"], job["attempt"], len(job["attempts"])) == ("COMPLETED", 2, 3)
    items = [(item["attempt"], item["value"]) for item in site.items("metrics", job_id)]
    assert items == [(0, 100.5), (1, 101.5), (2, 102.5)]


def test_hold_rename_release_and_cancel(site: sites.Site) -> None:
    job_id = by_hand(site, "--begin=now+1hour")
    site.run("track", job_id)
    assert site.run("hold", job_id).stdout == f"{job_id} is PENDING (JobHeldUser)\n"
    rename = ["scontrol", "update", f"jobid={job_id}", "name=other", "starttime=now"]
    site.lab.run(rename).check_returncode()
    assert site.job(job_id)["state"] == "PENDING"
    assert site.run("release", job_id).returncode == 0
    site.wait_state(job_id, "RUNNING")
    assert site.run("cancel", job_id).stdout == f"{job_id} is CANCELLED\n"


def test_tracking_an_ended_job(site: sites.Site) -> None:
    site.lab.reconfigure(min_job_age_seconds=2)
    let_go(site)
    job_id = by_hand(site, argument="4")
    site.lab.wait_for(
        lambda: [row["State"] for row in site.lab.sacct(job_id)][:1] == ["FAILED"], 180, "its end"
    )
    site.lab.forget(job_id)
    output = site.run("track", job_id, "--name", "old").stdout
    assert output == f"Tracking {job_id} (@1, old): FAILED\n"
    job = site.job(job_id)
    assert (job["state"], job["exit_code"], job["nodes"]) == ("FAILED", 4, 1)
    assert [item["value"] for item in site.items("metrics", "@1")] == [100.5]


def test_tracking_an_array_tracks_all_tasks(site: sites.Site) -> None:
    let_go(site)
    text = BODY.replace('exit "${1:-0}"', 'exit "$SLURM_ARRAY_TASK_ID"')
    job_id = by_hand(site, "--array=0-3%2", "-J", "many", text=text)
    output = site.run("track", job_id).stdout
    assert output == f"Tracking {job_id} (@1 to @4, many): 4 tasks\n"
    site.run("wait", "@1", "@2", "@3", "@4", check=1)
    ends = {item["job_id"]: item["exit_code"] for item in site.items("status", "--all")}
    assert ends == {f"{job_id}_{task}": task for task in range(4)}
    assert site.run("logs", "@3", "--path").stdout == f"{site.home}/slurm-{job_id}_2.out\n"
    assert (
        site.run("track", f"{job_id}_2").stdout == f"{job_id}_2 is already tracked as @3 (many)\n"
    )


def test_reused_job_id_is_another_job(lab: cluster.Lab, site: sites.Site) -> None:
    options = ("--hold", "-J", "same")
    saved = lab.save_slurmctld_state()
    lost = by_hand(site, *options)
    site.run("track", lost)
    lab.wipe_slurmctld_state(saved)
    # The same line from the same folder, under the same name.
    other = by_hand(site, *options)
    assert other == lost, "the ID is given again"
    job = site.wait_state("@1", "LOST", 120)
    assert job["reason"].startswith(f"Slurm has assigned job ID {lost} to another job")
    assert site.run("track", other).stdout == f"Tracking {other} (@2, same): PENDING\n"
    lab.run(["scontrol", "release", other]).check_returncode()
    let_go(site)
    site.run("wait", "@2")
    assert [site.job(row)["state"] for row in ("@1", "@2")] == ["LOST", "COMPLETED"]


def test_final_state_is_lost_without_accounting(lab: cluster.Lab, alice_home: str) -> None:
    lab.reconfigure(accounting=False, min_job_age_seconds=2)
    site = sites.Site.make(lab, alice_home, more="submit_grace_seconds = 4\n")
    job_id = by_hand(site)
    running(site, job_id)
    site.run("track", job_id)
    let_go(site)
    lab.forget(job_id)
    job = site.wait_state(job_id, "LOST")
    why = (
        r"\d+ results of squeue over \d+ s did not list it; this cluster has no accounting,"
        r" and there is no exit record"
    )
    assert re.fullmatch(why, job["reason"])
    assert [item["value"] for item in site.items("metrics", job_id)] == [100.5]
    unknown = site.run("track", "99999", check=4).stderr
    assert unknown.startswith("Error: squeue shows no job 99999 of yours")


def test_tasks_tracked_one_by_one_form_one_array(site: sites.Site) -> None:
    first, second = (by_hand(site, "--array=0-2", "--hold") for _ in range(2))
    assert site.run("track", f"{first}_1").stdout == f"Tracking {first}_1 (@1, hand.sh): PENDING\n"
    assert site.run("track", first).stdout == f"Tracking {first} (@1 to @3, hand.sh): 3 tasks\n"
    assert site.run("track", second).stdout == f"Tracking {second} (@4 to @6, hand.sh): 3 tasks\n"
    assert (
        site.run("track", f"{second}_1").stdout
        == f"{second}_1 is already tracked as @5 (hand.sh)\n"
    )
    for number in (first, second):
        assert [row["array_task_id"] for row in site.items("status", number)] == [0, 1, 2]
    assert site.run("cancel", first, f"{second}_0").stdout == (
        f"{first}_[0-2] is CANCELLED\n{second}_0 is CANCELLED\n"
    )
    assert site.job(f"{second}_2")["state"] == "PENDING"
    site.run("cancel", second)
