"""The example without Slurm: two ranks with torchrun, and their metrics in the database."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the trainer needs PyTorch")

pytestmark = pytest.mark.trainer

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_ddp.toml"
Orchestrator = Callable[..., str]


RANKS = """\
import os, sys, time
if os.environ["RANK"] != "1":
    time.sleep(600)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), 9)
if sys.argv[1] == "exit":
    sys.exit(4)
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("sample 7 has no label")
main()
"""
FIRST = ", the first failure that torchrun observed"


@pytest.mark.parametrize(
    ("how", "options", "cause", "summary"),
    [
        ("exit", (), "nonzero_exit", f"ended with exit code 4{FIRST}"),
        ("kill", (), "killed", f"was ended by SIGKILL{FIRST}"),
        # The output of the ranks is in files of torchrun only.
        (
            *("raise", ("--set", "environment.variables.PET_REDIRECTS='3'")),
            *("python_exception", "ValueError in RANKS, line 11: sample 7 has no label"),
        ),
    ],
)
def test_the_end_of_a_rank_is_explained(
    orchestrator: Orchestrator,
    tmp_path: Path,
    how: str,
    options: tuple[str, ...],
    cause: str,
    summary: str,
) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    argv = ["--launcher", "torchrun", "--set", "launch.nproc_per_node=2", *options, "--parsable"]
    argv += ["--scheduler", "local", "--name", "x", "--", "ranks.py", how]
    job_id = orchestrator("submit", *argv).strip()
    orchestrator("wait", job_id, code=1)
    (item,) = json.loads(orchestrator("explain", job_id, "--json"))["items"]
    assert (item["cause"], item["first_failing_rank"]) == (cause, 1)
    assert summary.replace("RANKS", f"{tmp_path}/ranks.py") in item["summary"]
    # The summary of torchrun names the error file, which is kept in the run folder.
    kept = [str(path) for path in tmp_path.rglob("torchrun/0.0/*/attempt_0/1/error.json")]
    assert len(kept) == (how == "raise") and all(
        path in orchestrator("logs", job_id) for path in kept
    )


def test_the_error_file_of_a_single_process(orchestrator: Orchestrator, tmp_path: Path) -> None:
    # A log that its program has closed: the exception is in the error file alone.
    program = f"import os; os.environ['RANK'] = '1'; os.close(2)\n{RANKS}"
    (tmp_path / "ranks.py").write_text(program)
    argv = ["--launcher", "python", "--scheduler", "local", "--name", "x", "--parsable"]
    job_id = orchestrator("submit", *argv, "--", "ranks.py", "raise").strip()
    orchestrator("wait", job_id, code=1)
    (item,) = json.loads(orchestrator("explain", job_id, "--json"))["items"]
    (error_file,) = map(str, tmp_path.rglob("error.0.0.0.json"))
    assert (item["cause"], item["evidence"][0]["path"]) == ("python_exception", error_file)
    assert item["summary"] == f"ValueError in {tmp_path}/ranks.py, line 12: sample 7 has no label"


def test_the_example_runs_on_two_ranks(orchestrator: Orchestrator, tmp_path: Path) -> None:
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
