"""doctor and config init on a real Slurm."""

from __future__ import annotations

import json
import signal

from tests.cluster import lab as cluster
from tests.cluster import site as sites


def checks(site: sites.Site, *argv: str) -> dict[str, tuple[str, str]]:
    done = site.run("doctor", "--job", "--json", *argv, check=None, timeout_seconds=120)
    return {
        row["check"]: (row["outcome"], row["found"]) for row in json.loads(done.stdout)["items"]
    }


def test_a_job_proves_the_run_folder(site: sites.Site) -> None:
    outcomes = checks(site)
    node = outcomes["clock"][1].partition(", ")[2].partition(":")[0]
    assert outcomes["runs_dir from a node"] == ("ok", f"{node} writes it, and this host sees it")
    assert outcomes["clock"] == ("ok", f"this host, {node}: same as slurmctld")
    assert outcomes["container on a node"][0] == "ok"


def test_folder_not_shared_with_compute_nodes(site: sites.Site) -> None:
    # Each host of the test cluster has a /tmp of its own.
    alone = site.with_env(ORCHESTRATOR_RUNS_DIR="/tmp/alone")
    outcome, result = checks(alone)["runs_dir from a node"]
    assert outcome == "bad"
    # Slurm itself cannot open the log there: 22.05 ends the job with 53, later ones run the script.
    code = "0:53" if site.lab.settings.release == "22.05" else "73:0"
    assert result.endswith(f"exit code {code}: /tmp/alone is not the same folder there")


def test_probe_job_does_not_start(site: sites.Site, lab: cluster.Lab) -> None:
    lab.run(
        ["scontrol", "update", "partitionname=short", "state=down"], user="root"
    ).check_returncode()
    try:
        outcomes = checks(site, "--partition", "short", "--timeout", "5")
    finally:
        lab.run(
            ["scontrol", "update", "partitionname=short", "state=up"], user="root"
        ).check_returncode()
    assert outcomes["compute node"][0] == "warning"
    assert outcomes["compute node"][1].endswith(
        "did not end in 5 s: needs action: the partition is down until"
        " an administrator starts it (PartitionDown)"
    )
    (job,) = site.items("status", "--name", "doctor", "--all")
    assert job["state"] == "CANCELLED"


def test_ctrl_c_cancels_the_probe_job(site: sites.Site, lab: cluster.Lab) -> None:
    down = ["scontrol", "update", "partitionname=short", "state=down"]
    lab.run(down, user="root").check_returncode()
    try:
        probing = site.popen("doctor", "--job", "--partition", "short")

        def pending() -> bool:
            items = site.items("status", "--name", "doctor", "--no-refresh")
            return [item["state"] for item in items] == ["PENDING"]

        lab.wait_for(pending, 60, "the probe job")
        lab.kill(probing, signal.SIGINT)
        probing.communicate(timeout=60)
    finally:
        lab.run([*down[:-1], "state=up"], user="root").check_returncode()
    assert probing.returncode == 130
    (job,) = site.items("status", "--name", "doctor", "--all")
    lab.wait_for(lambda: lab.job_state(job["job_id"]) == "CANCELLED", 60, "Slurm to cancel it")
    assert site.wait_state(job["job_id"], "CANCELLED")["started_at"] is None


def test_profile_draft(site: sites.Site) -> None:
    text = site.run("config", "init", "--print").stdout
    assert 'partition = "gpu"  # Slurm\'s default\n# account = "proj"  # yours: proj\n' in text
    assert '[profiles.lab.partitions.short]\nmax_time = "1:00"\ngpus_per_node = 4\n' in text
