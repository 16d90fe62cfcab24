"""The launch lines with the real torchrun and our trainer: two nodes are played by one machine."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from orchestrator import jobs
from tests.unit.rendering.machine import Machine

pytestmark = pytest.mark.trainer

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("launch", "nodes"),
    [
        # The cluster tier shows these two on hosts of their own.
        pytest.param({}, 1, id="standalone", marks=pytest.mark.slow),
        pytest.param({}, 2, id="c10d", marks=pytest.mark.slow),
        pytest.param({"rendezvous": "static"}, 2, id="static"),
        pytest.param({"launcher": "srun"}, 2, id="srun"),
    ],
)
def test_ranks_find_each_other(machine: Machine, launch: dict[str, str], nodes: int) -> None:
    torchrun = shutil.which("torchrun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if torchrun is None:
        pytest.skip("no torchrun: install the extra `train`")
    (machine.folder / "bin" / "torchrun").unlink()
    # A folder of the user's that has the name of ours is not taken for it.
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
