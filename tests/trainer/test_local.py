"""The example without Slurm: two ranks with torchrun, and their metrics in the database."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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

    def metrics(*argv: str) -> list[dict[str, Any]]:
        return json.loads(orchestrator("metrics", job_id, *argv, "--json"))["items"]

    # Exactly what the file holds, line by line, no digit rounded.
    (path,) = tmp_path.rglob("metrics.jsonl")
    written = [json.loads(line) for line in path.read_text().splitlines()]
    reported = metrics("--source", "jsonl")
    names = ("name", "value", "unit", "step", "epoch", "rank", "world_size", "attempt")
    assert len(written) > 20
    assert [[item[name] for name in names] for item in reported] == [
        [item[name] for name in names] for item in written
    ]
    when = [datetime.datetime.fromisoformat(item["time"]) for item in reported]
    assert when == [datetime.datetime.fromisoformat(item["time"]) for item in written]
    # And what the log holds, to its three digits.
    for name in ("throughput", "val_loss"):
        by_file, by_log = (
            [
                (metric["epoch"], metric["value"])
                for metric in metrics("--source", source, "--name", name)
            ]
            for source in ("jsonl", "log")
        )
        # The log's last throughput is of the whole run, and so without an epoch.
        by_log = [(epoch, value) for epoch, value in by_log if epoch is not None]
        assert [epoch for epoch, _ in by_log] == [1, 2]
        assert by_log == [
            (epoch, round(value, 3 if name == "throughput" else 4)) for epoch, value in by_file
        ]
