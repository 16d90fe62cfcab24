"""The record of nodes on a real Slurm: exclusion of a bad host, and of hosts that do not exist."""

from __future__ import annotations

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
    job = site.wait_state(site.submit(spec, "--exclude=n[1,3-4]"), "FAILED")
    assert job["node_list"] == "n2"
