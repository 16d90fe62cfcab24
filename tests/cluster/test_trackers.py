"""W&B in three attempts of a job: one run, without a network.

ORCHESTRATOR_TEST_WANDB names a folder of `pip install --target FOLDER --python-version 3.13
--only-binary=:all: wandb`, for the Python of the cluster.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import pytest

from tests.cluster import environment
from tests.cluster import lab as cluster
from tests.cluster import site as sites

FOLDER = os.environ.get("ORCHESTRATOR_TEST_WANDB", "")
#: In the hosts' file system.
PACKAGES = "/home/alice/trackers"
TRAIN = """
import os, sys, wandb
attempt = int(os.environ["ORCHESTRATOR_ATTEMPT"])
run = wandb.init(settings=wandb.Settings(x_disable_stats=True))
print("run", run.id, run.name)
for step in range(3 * attempt, 3 * attempt + 5):
    run.log({"loss": step + attempt / 8}, step=step)
    print(f"step {step} loss {step + attempt / 8}", flush=True)
if attempt == 1:
    raise ValueError("bad sample")
run.finish()
if attempt == 0:
    open(os.environ["ORCHESTRATOR_REQUEUE_FILE"], "w").close()
"""


@pytest.fixture(scope="module")
def _packages(running_lab: cluster.Lab) -> None:
    shutil.copytree(FOLDER, running_lab.path(PACKAGES))


@pytest.mark.skipif(not FOLDER, reason="ORCHESTRATOR_TEST_WANDB names no folder of packages")
@pytest.mark.slow
@pytest.mark.usefixtures("_packages")
def test_wandb_has_one_run_over_three_attempts(site: sites.Site, checkout: pathlib.Path) -> None:
    site.lab.write(f"{site.home}/train.py", TRAIN)
    values = {"PYTHONPATH": PACKAGES, "PATH": f"{environment.PLACE}/bin:/usr/bin:/bin"}
    options = [f"--variable={name}={value}" for name, value in values.items()]
    options += ["--set", 'tracking.trackers=["wandb"]', "--set", "tracking.project=digits"]
    job = site.submit("train.py", "--mem=1G", "--time-limit=5", *options)
    site.run("wait", job, check=1, timeout_seconds=200)
    assert "run " in site.run("logs", job).stdout
    site.run("requeue", job)
    site.run("wait", job, timeout_seconds=200)
    shown = site.job(job)
    assert (shown["state"], shown["attempt"]) == ("COMPLETED", 2)
    site.lab.write(f"{site.home}/reader.py", (checkout / "tests/wandb_reader.py").read_text())
    files = f"{shown['run_dir']}/tracking/wandb/offline-run-*/*.wandb"
    command = f"PYTHONPATH={PACKAGES} {environment.PLACE}/bin/python3 {site.home}/reader.py {files}"
    read = site.lab.run(["sh", "-c", command])
    assert read.returncode == 0, read.stderr
    found = json.loads(read.stdout)
    token = shown["run_dir"].rpartition(".")[2]
    assert [run[:3] for run in found] == [[token, "", f"train.{token}"]] * 3
    steps = [[(row["_step"], row["loss"]) for row in run[3]] for run in found]
    assert steps == [
        [(step, step + attempt / 8) for step in range(3 * attempt, 3 * attempt + 5)]
        for attempt in range(3)
    ]
