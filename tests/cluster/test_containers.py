"""Container runtimes beside Apptainer, and images that jobs build."""

from __future__ import annotations

import re

import pytest

from tests.cluster import lab as cluster
from tests.cluster import root
from tests.cluster import site as sites

#: Makes the SIF image of the cluster a folder, as ch-convert makes one of a Docker image.
CONVERT = f"""
at=$(apptainer sif list {root.IMAGE} | sed -n 's/.*|\\([0-9]*\\)-.*Squashfs.*/\\1/p')
unsquashfs -q -n -o "$at" -d "$1" {root.IMAGE}
# Before 0.33 ch-run does not create what is bound.
mkdir -p "$1/ch" "$1/$(dirname "$1")" "$1/{sites.ENVIRONMENT}"
printf 'NCCL_DEBUG=IMAGE\\nIN_IMAGE=yes\\n' >"$1/ch/environment"
"""
#: What the image and what the job sets.
RANK = """
import os
assert (os.environ["NCCL_DEBUG"], os.environ["IN_IMAGE"]) == ("WARN", "yes")
rank, ranks = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(f"rank {rank} of {ranks} on {os.environ['SLURMD_NODENAME']}: 2.00")
"""
#: Fits y = 2x on all ranks. Without DistributedDataParallel: gloo's threads would have to be ended
#: with care.
TRAINING = """
import os, torch, torch.distributed as dist
assert (os.environ["NCCL_DEBUG"], os.environ["IN_IMAGE"]) == ("WARN", "yes")

def fit():
    torch.manual_seed(dist.get_rank())
    weight = torch.zeros(1)
    for _ in range(100):
        x = torch.rand(64)
        gradient = (2 * (weight * x - 2 * x) * x).mean().reshape(1)
        dist.all_reduce(gradient)
        weight -= 0.5 * gradient / dist.get_world_size()
    return weight.item()

dist.init_process_group("gloo")
place = f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.environ['SLURMD_NODENAME']}"
print(f"{place}: {fit():.2f}")
dist.destroy_process_group()
"""
SPEC = """\
[job]
name = "ch"
time_limit = "5"
[resources]
nodes = 2
gpus_per_node = 1
mem = "2G"
[environment]
venv = "{venv}"
variables = {{ OMP_NUM_THREADS = "1", NCCL_DEBUG = "WARN" }}
[container]
runtime = "charliecloud"
image = "{home}/image"
binds = ["{venv}", "{home}"]
[launch]
launcher = "{launcher}"
script = "fit.py"
"""
#: Nothing is downloaded, and the second build waits to be killed.
DEFINITION = f"""\
Bootstrap: localimage
From: {root.IMAGE}
%files
    hello.txt /hello.txt
%post
    grep -q hello /hello.txt || sleep 600
"""
FAST = ("--", "--mksquashfs-args", "-comp zstd -Xcompression-level 1")


@pytest.mark.parametrize(
    ("launcher", "program"),
    [("srun", RANK), pytest.param("torchrun", TRAINING, marks=pytest.mark.slow)],
)
def test_two_hosts_in_charliecloud(
    lab: cluster.Lab, site: sites.Site, launcher: str, program: str
) -> None:
    lab.run(["bash", "-ec", CONVERT, "convert", f"{site.home}/image"]).check_returncode()
    lab.write(f"{site.home}/fit.py", program)
    spec = site.spec("ch", SPEC.format(venv=sites.ENVIRONMENT, home=site.home, launcher=launcher))
    done = site.run("submit", spec, "--wait", check=None)
    log = site.run("logs", "ch").stdout
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    ranks = re.findall(r"^rank (\d) of 2 on (n\d): 2.00$", log, re.M)
    assert {rank for rank, _ in ranks} == {"0", "1"} and len(dict(map(reversed, ranks))) == 2, log
    (record,) = site.items("show", "ch", "--environment", "--no-refresh")
    assert record["packages"]["torch"] and record["variables"]["NCCL_DEBUG"] == "WARN"


def test_an_image_is_built_once_and_a_killed_build_leaves_none(
    lab: cluster.Lab, site: sites.Site
) -> None:
    lab.write(f"{site.home}/env.def", DEFINITION)
    lab.write(f"{site.home}/hello.txt", "hello")
    words = ("image", "build", f"{site.home}/env.def")
    image = site.run(*words, "--wait", *FAST).stdout.strip()
    shown = lab.run(["apptainer", "exec", image, "cat", "/hello.txt"])
    assert shown.stdout == "hello"
    again = site.run(*words, *FAST)
    assert (again.stdout, again.stderr) == (f"{image}\n", "")
    (row,) = site.items("image", "list")
    assert (row["state"], row["architecture"]) == ("built", "x86_64")
    # Another file: another image, whose job is killed while it builds.
    lab.write(f"{site.home}/hello.txt", "bye")
    begun = site.run(*words, *FAST)
    other, job_id = begun.stdout.strip(), begun.stderr.split()[1]
    assert other != image
    log = site.wait_state(job_id, "RUNNING")["stdout_path"]
    lab.wait_for(lambda: "Running post scriptlet" in str(lab.read_lines(log)), 120, "%post")
    lab.run(["scancel", "--signal=KILL", "--full", job_id]).check_returncode()
    assert site.wait_state(job_id, ("FAILED", "CANCELLED"))
    states = {row["path"]: row["state"] for row in site.items("image", "list")}
    assert states == {image: "built", other: "NOT_BUILT"}
    assert lab.run(["test", "-e", other]).returncode == 1
