"""The record of nodes on a real Slurm: exclusion of a bad host, and of hosts that do not exist."""

from __future__ import annotations

import re

import pytest

from tests.cluster import site as sites

#: Fails on n2 as on a broken GPU.
BROKEN = (
    "[ $SLURMD_NODENAME != n2 ] || "
    "{ echo 'NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.'; exit 1; }"
)
#: The test cluster has four hosts, of which one may be excluded.
AUTO = '[nodes]\nexclude = "auto"\n'


def test_a_host_that_failed_twice_is_excluded(site: sites.Site) -> None:
    lab, path = site.lab, f"{site.home}/config/orchestrator/config.toml"
    spec = site.shell("broken", BROKEN, resources='cpus_per_task = 1\nmem = "100M"')
    for _ in range(2):
        # Until the details are known, and with them the cause.
        site.run("wait", site.submit(spec, "--nodelist=n2"), check=1)
    (node,) = site.items("nodes")
    assert (node["node"], node["failures"]) == ("n2", {"device_fault": 2})
    assert node["exclude"]

    lab.write(path, lab.path(path).read_text() + AUTO)
    refused = lab.run(["sbatch", "--exclude=n2,n99", "--wrap=true"])
    assert "Invalid node name specified" in refused.stderr
    # n99 is in the script too; sbatch's command line overrides it, also if nothing is left.
    job = site.wait_state(site.submit(spec, "--exclude=n1,n3,n99"), "COMPLETED")
    assert job["node_list"] == "n4"
    asked = site.submit(spec, "--exclude=n99", "--nodelist=n2")
    site.wait_state(asked, "FAILED")
    listed = lab.run(["scontrol", "-o", "show", "job", job["job_id"]]).stdout
    assert "ExcNodeList=n[1-3] " in listed
    # No other host is left for it.
    estimate = site.run("submit", spec, "--exclude=n[1,3-4]", "--test-only").stdout
    assert " on n2 in partition" in estimate
    job = site.wait_state(site.submit(spec, "--exclude=n[1,3-4]"), "FAILED")
    assert job["node_list"] == "n2"


#: Two ranks of the trainer, one on each host; steps whose backward pass takes most of their time.
TRAINING = f"""\
[job]
name = "throttled"
time_limit = "00:10:00"
[resources]
nodes = 2
cpus_per_task = 1
mem = "1G"
[environment]
venv = "{sites.ENVIRONMENT}"
variables = {{ OMP_NUM_THREADS = "1" }}
[launch]
launcher = "torchrun"
nproc_per_node = 1
module = "trainers.train"
[args]
device = "cpu"
epochs = 1000000
window_seconds = 1
"""


@pytest.mark.slow
def test_a_throttled_host_is_a_straggler_and_excluded_the_second_time(site: sites.Site) -> None:
    lab, path = site.lab, f"{site.home}/config/orchestrator/config.toml"
    lab.write(path, lab.path(path).read_text() + AUTO)
    spec = site.spec("throttled", TRAINING)
    with lab.throttled("n2", cpus=0.2):
        for number in (1, 2):
            job_id = site.submit(spec, "--nodelist=n[1-2]")
            seen: list[str] = []

            def is_reported(job_id: str = job_id, seen: list[str] = seen) -> bool:
                seen[:] = [alert["detail"] for alert in site.job(job_id)["alerts"]]
                return bool(seen)

            # Running jobs are checked once a minute.
            lab.wait_for(is_reported, 240, "the alert", 2)
            assert re.fullmatch(
                r"rank 1 on n2 takes \d+\.\d times as long as others"
                r" \(compute_time \S+ seconds, others \S+\)",
                seen[0],
            )
            site.run("cancel", job_id)
            site.wait_state(job_id, "CANCELLED")
            (node,) = site.items("nodes")
            assert (node["node"], node["slow_runs"], node["exclude"]) == ("n2", number, number == 2)
    job = site.wait_state(site.submit(site.shell("after", "true")), "COMPLETED")
    assert 'n2 is excluded (nodes.exclude = "auto"): 2 slow runs' in sites.details(job)
    listed = lab.run(["scontrol", "-o", "show", "job", job["job_id"]]).stdout
    assert "ExcNodeList=n2 " in listed
