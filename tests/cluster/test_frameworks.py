"""The examples of frameworks on two nodes with gloo: a failure is explained, a requeue resumes.

Their packages are too large for the test environment: ORCHESTRATOR_TEST_FRAMEWORKS names a folder
of `uv pip install --target`, for the Python of the cluster.
"""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

from tests.cluster import environment
from tests.cluster import lab as cluster
from tests.cluster import site as sites

#: The line after which rank 1 fails in the first attempt, and when.
FAILS = {
    "accelerate": (
        "    accelerator.wait_for_everyone()\n",
        "    if epoch == 2 and accelerator.process_index == 1",
    ),
    "lightning": (
        '            print(f"epoch={trainer.current_epoch + 1} loss={loss:.4f}", flush=True)\n',
        "        if trainer.current_epoch == 2 and trainer.global_rank == 1",
    ),
    "transformers": (
        '            print(f"epoch={state.epoch:.0f} is saved", flush=True)\n',
        "        if state.epoch == 2 and args.process_index == 1",
    ),
}


#: The packages, in the hosts' file system.
PACKAGES = "/home/alice/frameworks"


SIZE = ("--nodes=2", "--ntasks-per-node=1", "--mem=3G", "--time-limit=10")
VARIABLES = {
    "PYTHONPATH": PACKAGES,
    "PATH": f"{environment.PLACE}/bin:{PACKAGES}/bin:/usr/bin:/bin",
    "CUDA_VISIBLE_DEVICES": "",
}
#: On CPUs DeepSpeed compiles an operator for shared memory.
WITHOUT_COMPILER = {"deepspeed": "import deepspeed.ops\n\ndeepspeed.ops.__compatible_ops__ = {}\n"}
OPTIONS = [f"--variable={name}={value}" for name, value in VARIABLES.items()]
FOLDER = os.environ.get("ORCHESTRATOR_TEST_FRAMEWORKS", "")
needs_packages = pytest.mark.skipif(
    not FOLDER, reason="ORCHESTRATOR_TEST_FRAMEWORKS names no folder of packages"
)


@pytest.fixture(scope="module")
def _packages(running_lab: cluster.Lab) -> None:
    shutil.copytree(FOLDER, running_lab.path(PACKAGES))


@needs_packages
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_packages")
@pytest.mark.parametrize("framework", FAILS)
def test_a_job_fails_with_its_cause_and_resumes(
    site: sites.Site, checkout: pathlib.Path, framework: str
) -> None:
    line, condition = FAILS[framework]
    text = (checkout / f"examples/frameworks/train_{framework}.py").read_text()
    assert text.count(line) == 1
    first = 'os.environ["ORCHESTRATOR_ATTEMPT"] == "0"'
    fails = f'{condition} and {first}:\n            raise ValueError("bad sample")\n'
    site.lab.write(f"{site.home}/train.py", text.replace(line, line + fails))
    job = site.submit("train.py", f"--framework={framework}", *SIZE, *OPTIONS)
    assert site.run("wait", job, check=1, timeout_seconds=400).returncode == 1
    explained = site.run("explain", job).stdout
    assert f"Cause:     python_exception: ValueError in {site.home}/train.py, line " in explained
    assert "bad sample (first on rank 1)\n" in explained
    site.run("requeue", job)
    site.run("wait", job, timeout_seconds=400)
    log = site.run("logs", job).stdout.partition(" attempt 1 on ")[2]
    assert "2 processes, epoch 3 is the first" in log
    assert "epoch=5" in log
    assert "epoch=2" not in log


@needs_packages
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_packages")
@pytest.mark.parametrize("framework", ["deepspeed", "jax", "ray"])
def test_a_job_trains_and_goes_on_after_a_requeue(
    site: sites.Site, checkout: pathlib.Path, framework: str
) -> None:
    text = (checkout / f"examples/frameworks/train_{framework}.py").read_text()
    site.lab.write(f"{site.home}/train.py", WITHOUT_COMPILER.get(framework, "") + text)
    # A job of Ray ends when its program ends, not a minute later.
    words = ("train.py", f"--framework={framework}", "--exclusive", *SIZE, *OPTIONS)
    job = site.submit(*words, "--cpus-per-task=4")
    site.run("wait", job, timeout_seconds=400)
    log = site.run("logs", job).stdout
    assert "2 processes, epoch 1 is the first" in log
    assert "epoch=5 loss=" in log
    site.run("requeue", job)
    site.run("wait", job, timeout_seconds=400)
    log = site.run("logs", job).stdout.partition(" attempt 1 on ")[2]
    assert "2 processes, epoch 6 is the first" in log
