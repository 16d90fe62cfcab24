"""The rendered launch lines with torchrun and the trainer; one machine simulates two nodes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import jobs
from tests.flow.scripts import machine as machines
from tests.flow.scripts.machine import Machine

pytestmark = pytest.mark.trainer

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with machines.killed_with_pytest():
        yield machines.make(tmp_path)


@pytest.mark.parametrize(
    ("launch", "nodes"),
    [
        pytest.param({"rendezvous": "static"}, 2, id="static"),
        # The cluster tier runs these on separate hosts.
        pytest.param({}, 1, id="standalone", marks=pytest.mark.slow),
        pytest.param({}, 2, id="c10d", marks=pytest.mark.slow),
        pytest.param({"launcher": "srun"}, 2, id="srun", marks=pytest.mark.slow),
    ],
)
def test_ranks_find_each_other(machine: Machine, launch: dict[str, str], nodes: int) -> None:
    torchrun = shutil.which("torchrun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if torchrun is None:
        pytest.skip("no torchrun: install the extra `train`")
    (machine.folder / "bin" / "torchrun").unlink()
    # The user's own folder `trainers` must not hide ours.
    (machine.folder / "work" / "trainers").mkdir()
    (machine.folder / "work" / "trainers" / "train.py").write_text("raise SystemExit('not ours')")
    script = machine.render(
        launch=jobs.Launch(module="trainers.train", **launch),  # type: ignore[arg-type]
        resources=jobs.Resources(nodes=nodes, gpus_per_node=2),
        args={"epochs": 1, "device": "cpu"},
    )
    result = machine.run(
        script,
        # Four ranks import PyTorch: seconds, but on a busy machine minutes.
        timeout_seconds=300,
        PATH=f"{machine.folder}/bin:{Path(torchrun).parent}:{os.environ['PATH']}",
        PYTHONPATH=str(CHECKOUT),
        SLURM_JOB_NUM_NODES=str(nodes),
        # The port follows from it, and tests may run at the same time.
        SLURM_JOB_ID=str(os.getpid()),
    )
    assert result.returncode == 0, result.stderr
    assert f"Training started with {2 * nodes} processes across {nodes} nodes." in result.stdout
    lines = (machine.run_dir / "metrics.jsonl").read_text().splitlines()
    names = {json.loads(line)["name"] for line in lines}
    assert "throughput" in names
