"""The example, submitted without Slurm: two ranks by torchrun, their numbers in the database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the trainer needs PyTorch")

pytestmark = pytest.mark.trainer

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_ddp.toml"


def test_the_example_runs_on_two_ranks(clean_environ: Mapping[str, str], tmp_path: Path) -> None:
    environ = {
        **clean_environ,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_CONFIG_DIRS": str(tmp_path / "site"),
        "CUDA_VISIBLE_DEVICES": "",
        # torchrun of this very Python.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }

    def orchestrator(*argv: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *argv],
            cwd=tmp_path,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    argv = ["--set", "resources.gpus_per_node=2", "--set", "args.epochs=2", "--parsable"]
    job_id = orchestrator("submit", str(EXAMPLE), "--scheduler", "local", *argv).strip()
    assert job_id == "local-1"
    orchestrator("wait", job_id)
    assert "Training started with 2 processes across 1 nodes." in orchestrator("logs", job_id)
    for source in ("jsonl", "log"):
        told = orchestrator("metrics", job_id, "--name", "throughput", "--source", source, "--json")
        found = json.loads(told)["items"]
        assert [metric["epoch"] for metric in found] == [1, 2]
        assert all(metric["value"] > 0 for metric in found)
