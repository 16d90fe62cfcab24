"""W&B in three attempts of a job: one run, without a network.

ORCHESTRATOR_TEST_TRACKERS names a folder of packages for the cluster's Python, see
tests/flow/test_trackers_for_real.py.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.cluster import environment
from tests.cluster import lab as cluster
from tests.cluster import site as sites

FOLDER = os.environ.get("ORCHESTRATOR_TEST_TRACKERS", "")
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
    os.abort()
run.finish()
if attempt == 0:
    open(os.environ["ORCHESTRATOR_REQUEUE_FILE"], "w").close()
"""


@pytest.fixture(scope="module")
def _packages(running_lab: cluster.Lab) -> None:
    shutil.copytree(FOLDER, running_lab.path(PACKAGES))


@pytest.mark.skipif(not FOLDER, reason="ORCHESTRATOR_TEST_TRACKERS names no folder of packages")
@pytest.mark.slow
@pytest.mark.usefixtures("_packages")
def test_wandb_has_one_run_over_three_attempts(site: sites.Site, checkout: pathlib.Path) -> None:
    site.lab.write(f"{site.home}/train.py", TRAIN)
    values = {"PYTHONPATH": PACKAGES, "PATH": f"{environment.PLACE}/bin:/usr/bin:/bin"}
    options = [f"--variable={name}={value}" for name, value in values.items()]
    options += ["--set", 'tracking.trackers=["wandb"]', "--set", "tracking.project=digits"]
    job = site.submit("train.py", "--mem=1G", "--time-limit=5", *options)
    site.run("wait", job, check=1, timeout_seconds=200)
    print(site.run("logs", job).stdout)
    site.run("requeue", job)
    site.run("wait", job, check=None, timeout_seconds=200)
    print(site.run("logs", job).stdout)
    shown = site.job(job)
    assert (shown["state"], shown["attempt"]) == ("COMPLETED", 2)
    folder = site.lab.path(f"{shown['run_dir']}/tracking/wandb")
    files = sorted(folder.glob("offline-run-*/*.wandb"))
    read = subprocess.run(
        [sys.executable, checkout / "tests/wandb_reader.py", *files],
        env={**os.environ, "PYTHONPATH": FOLDER},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(read.stdout)
    token = shown["token"]
    assert [run[:3] for run in found] == [[token, "", f"train.{token}"]] * 3
    steps = [[(row["_step"], row["loss"]) for row in run[3]] for run in found]
    assert steps == [
        [(step, step + attempt / 8) for step in range(3 * attempt, 3 * attempt + 5)]
        for attempt in range(3)
    ]
