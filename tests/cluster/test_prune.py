"""`prune` beside live arrays, continuation jobs and schedules on a real Slurm."""

from __future__ import annotations

from typing import Any

from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.cluster import test_recovery as recovery
from tests.cluster.test_graphs import change

SMALL = {"resources": "cpus_per_task = 1\nmem = '50M'"}
#: Slurm may still requeue younger jobs, and no test waits for an hour.
_THEN = "'2026-01-01 00:00:00.000000'"
AGE = (
    f"UPDATE jobs SET created_at = {_THEN}, submitted_at = {_THEN}, started_at = {_THEN}, "
    f"ended_at = {_THEN} WHERE ended_at IS NOT NULL"
)


def pruned(site: sites.Site, *argv: str) -> tuple[list[str], list[str]]:
    """Remove run folders; return the names of the jobs, and the messages."""
    change(site, AGE)
    done = site.run("prune", "--run-folders", "--older-than", "1h", "--yes", *argv)
    lines = [line.split("\t") for line in done.stdout.splitlines()[1:]]
    return sorted(line[1] for line in lines), done.stderr.splitlines()


def folder_exists(site: sites.Site, job: dict[str, Any]) -> bool:
    return site.lab.path(job["run_dir"]).exists()


def test_only_what_nothing_needs_goes(lab: cluster.Lab, site: sites.Site) -> None:
    waits = "[ $SLURM_ARRAY_TASK_ID != 0 ] || sleep 600"
    array = site.submit(site.shell("array", waits, array="size = 3", **SMALL))
    chain = site.submit(site.shell("chain", recovery.SAVES, retry=recovery.RETRY, **SMALL))
    nightly = site.shell("nightly", "echo step 1 loss 2.5", **SMALL)
    site.run("schedule", "add", "nightly", "--cron", "0 0 1 1 *", nightly)
    site.run("schedule", "run", "nightly")
    marker = f"{site.home}/ran"
    plain = site.submit(site.shell("plain", f"echo x >> {marker}", **SMALL))
    # A continuation job runs, and its checkpoints are in the folder of the first job.
    recovery.reach_limit(lab, site, "chain", 1)
    for name in (plain, "nightly", f"{array}_1", f"{array}_2"):
        site.run("wait", name)

    def continued() -> bool:
        recovery.tick(site)
        last = recovery.last_of(site, chain)
        # Slurm checks time limits every half minute: the first job goes on until then.
        return last["job_id"] != chain and last["state"] == "RUNNING"

    lab.wait_for(continued, 90, "the continuation job", 0.5)
    first = site.job(chain)
    names, messages = pruned(site)
    assert names == ["plain"], messages
    reasons = {line.partition(": ")[2] for line in messages if line.startswith("Kept")}
    assert reasons == {
        "not ended",
        "schedule nightly compares its next runs with them",
    }, messages
    assert not folder_exists(site, site.job(plain))
    assert folder_exists(site, first)
    # Somebody requeues the job by hand: without its folder it runs nothing.
    lab.run(["scontrol", "requeue", plain], user="root").check_returncode()
    site.wait_state(plain, ("FAILED", "NODE_FAIL", "CANCELLED"))
    assert lab.run(["cat", marker]).stdout == "x\n"
    # The third job of the chain counts the checkpoints of the first two.
    recovery.reach_limit(lab, site, "chain", 2)
    last = recovery.drive(site, {"chain": chain}, 120)["chain"]
    assert last["state"] == "COMPLETED"
    site.run("cancel", array)
    names, messages = pruned(site)
    assert set(names) >= {"array", "chain"} and "nightly" not in names, messages
    assert not folder_exists(site, first)
    assert site.run("db", "check").stderr == "The database is intact.\n"
