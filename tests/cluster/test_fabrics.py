"""A fabric of the user's: gloo on two hosts uses its interface, and doctor finds a wrong one."""

from __future__ import annotations

import json

from tests.cluster import site as sites

FABRIC = """\
summary = "the test cluster"
network = {{ value = "socket" }}
[variables]
GLOO_SOCKET_IFNAME = {{ value = "{interface}" }}
NCCL_SOCKET_IFNAME = {{ value = "eth" }}
[libraries]
"libc.so.6" = {{}}
"""
PROGRAM = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"{os.environ['GLOO_SOCKET_IFNAME']}: {int(total)} ranks", flush=True)
dist.destroy_process_group()
"""


def test_gloo_uses_the_interface_of_a_fabric(site: sites.Site) -> None:
    folder = f"{site.home}/config/orchestrator/fabrics"
    site.lab.write(f"{site.home}/train.py", PROGRAM)
    site.lab.write(f"{site.home}/mill.toml", FABRIC.format(interface="eth0"))
    site.lab.write(f"{folder}/wrong.toml", FABRIC.format(interface="hsn0"))
    size = ("--nodes=2", "--ntasks-per-node=1", "--mem=1G", "--time-limit=5")
    python = f"--venv={sites.ENVIRONMENT}"
    job = site.submit("train.py", "--launcher=torchrun", "--fabric=./mill.toml", *size, python)
    wrong = site.with_env(ORCHESTRATOR_FABRIC="wrong")
    done = wrong.run("doctor", "--job", "--json", check=1)
    checks = {
        row["check"]: (row["outcome"], row["found"]) for row in json.loads(done.stdout)["items"]
    }
    node = checks["runs_dir from a node"][1].partition(" ")[0]
    assert checks["fabric"] == ("ok", f"wrong ({folder}/wrong.toml): 2 variables set")
    assert checks["NCCL_SOCKET_IFNAME"] == ("ok", f"eth: up on {node}")
    assert checks["GLOO_SOCKET_IFNAME"] == ("bad", f"hsn0: {node}: has no hsn0")
    assert checks["fabric libraries"][0] == "ok"
    assert checks["NCCL network"] == ("ok", "not checked: no GPU, or no torch")
    site.run("wait", job)
    assert site.run("logs", job).stdout.count("eth0: 2 ranks") == 2
