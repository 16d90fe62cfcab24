"""The trainer as a program: output, files and exit codes."""

import json
import os
import pathlib
import platform
import re
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")

from tests.trainer import one_rank  # noqa: E402
from trainers import arguments, train  # noqa: E402

pytestmark = pytest.mark.trainer

Launch = Callable[..., subprocess.CompletedProcess[str]]

NUM_TRAIN = 1438
TRAIN = ["-m", "trainers.train", "--device", "cpu"]
TORCHRUN = [
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--local-addr=127.0.0.1",
    "--nproc-per-node=2",
]

NUMBER = r"([0-9]+\.[0-9]{3})"
SHARE = r"([0-9]+\.[0-9]{4})"
START = r"""Training started with {world_size} processes across 1 nodes\.
Using 0 GPUs per node\.
  model:          cnn \(38,282 parameters\)
  data:           digits: 1,438 images for training, 359 images for evaluation
  data path:      device
  batch:          64 images in 23 steps an epoch, {per_device} on each device in 1 pass\(es\) a step
  optimizer:      sgd, learning rate 0\.05 constant
  precision:      fp32, compile off
  devices:        {world_size} x CPU
"""
EPOCH = rf"""Epoch {{epoch}}/{{num_epochs}} completed in {NUMBER} seconds
Validation Loss: {SHARE}, Validation Accuracy: {SHARE}
Epoch Throughput: {NUMBER} images/second
"""
STOP = r"""Target accuracy reached\. Early stopping after epoch {epoch}\.
"""
SUMMARY = rf"""
Training Summary:
Total training time: {NUMBER} seconds
Throughput: {NUMBER} images/second
Number of nodes: 1
Number of GPUs per node: 0
Total GPUs used: 0
Total processes: {{world_size}}
Evaluation: [0-9]+\.[0-9]{{3}} seconds
Waiting for checkpoints: [0-9]+\.[0-9]{{3}} seconds
Training completed successfully\.
"""


def read_log(stdout: str, *, world_size: int, num_epochs: int) -> tuple[list[float], bool]:
    """Match the whole log; return its numbers, four an epoch and two at the end, and if stopped."""
    done = stdout.count("completed in")
    stopped = "Target accuracy" in stdout
    parts = [START.format(world_size=world_size, per_device=64 // world_size)]
    for epoch in range(1, done + 1):
        parts.append(EPOCH.replace("{epoch}/{num_epochs}", f"{epoch}/{num_epochs}"))
    if stopped:
        parts.append(STOP.format(epoch=done))
    parts.append(SUMMARY.replace("{world_size}", str(world_size)))
    match = re.fullmatch("".join(parts), stdout)
    assert match, stdout
    return [float(text) for text in match.groups()], stopped


def read_metrics(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_metrics(records: list[dict[str, Any]], numbers: list[float], num_epochs: int) -> None:
    """Compare metrics.jsonl with all numbers of the log, to the log's rounding."""
    by_name = {
        name: [(record["epoch"], record["value"]) for record in records if record["name"] == name]
        for name in {record["name"] for record in records}
    }
    epochs = range(1, num_epochs + 1)
    for offset, name, digits in (
        (0, "epoch_time", 3),
        (1, "val_loss", 4),
        (2, "val_accuracy", 4),
        (3, "throughput", 3),
    ):
        printed = list(zip(epochs, numbers[offset:-2:4], strict=True))
        assert [(epoch, round(value, digits)) for epoch, value in by_name[name]] == printed
    assert round(by_name["total_time"][0][1], 3) == numbers[-2]
    assert round(by_name["total_throughput"][0][1], 3) == numbers[-1]


def check_throughput(numbers: list[float], num_epochs: int) -> None:
    """Time by throughput is the number of images, as exactly as three digits allow."""
    for seconds, throughput, num_samples in (
        *((numbers[4 * i], numbers[4 * i + 3], NUM_TRAIN) for i in range(num_epochs)),
        (numbers[-2], numbers[-1], NUM_TRAIN * num_epochs),
    ):
        rounding = 0.0006 * (seconds + throughput)
        assert seconds * throughput == pytest.approx(num_samples, abs=rounding)


@pytest.fixture(scope="module")
def single_run(
    launch: Launch, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("one_rank")
    done = launch([*TRAIN, "--epochs", "4", "--run-dir", str(folder), "--window-steps", "10"])
    assert done.returncode == 0, done.stderr
    return done.stdout, folder / "metrics.jsonl"


@pytest.fixture(scope="module")
def two_ranks(launch: Launch, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("two_ranks")
    (folder / "attempt.3.1").touch()
    done = launch(
        [*TORCHRUN, *TRAIN, "--target-accuracy", "0.9", "--per-device-batch-size", "32"],
        ORCHESTRATOR_RUN_DIR=str(folder),
        ORCHESTRATOR_METRICS_FILE=str(folder / "metrics.3.jsonl"),
        ORCHESTRATOR_TASK="3",
        ORCHESTRATOR_ATTEMPT="1",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, folder / "metrics.3.jsonl"


def test_one_rank(single_run: tuple[str, pathlib.Path]) -> None:
    stdout, path = single_run
    numbers, stopped = read_log(stdout, world_size=1, num_epochs=4)
    assert not stopped
    accuracies = numbers[2:-2:4]
    assert accuracies[-1] > 0.9
    check_throughput(numbers, num_epochs=4)
    records = read_metrics(path)
    check_metrics(records, numbers, num_epochs=4)
    assert {(record["world_size"], record["attempt"]) for record in records} == {(1, 0)}
    # 23 steps an epoch: three windows in each, the run's first one left out.
    assert [record["step"] for record in records if record["name"] == "step_time"] == [
        20, 23, 33, 43, 46, 56, 66, 69, 79, 89, 92,
    ]  # fmt: skip


def test_two_ranks_stop_at_the_target(two_ranks: tuple[str, pathlib.Path]) -> None:
    stdout, path = two_ranks
    numbers, stopped = read_log(stdout, world_size=2, num_epochs=10)
    assert stopped
    accuracies = numbers[2:-2:4]
    assert [accuracy >= 0.9 for accuracy in accuracies[-3:]] == [False, True, True]
    check_throughput(numbers, num_epochs=len(accuracies))
    records = read_metrics(path)
    check_metrics(records, numbers, num_epochs=len(accuracies))
    assert {(record["world_size"], record["attempt"]) for record in records} == {(2, 1)}


def test_two_ranks_learn_as_one_does(
    single_run: tuple[str, pathlib.Path], two_ranks: tuple[str, pathlib.Path]
) -> None:
    single, several = (
        [record["value"] for record in read_metrics(path) if record["name"] == "val_loss"][:3]
        for _, path in (single_run, two_ranks)
    )
    assert several == pytest.approx(single, rel=1e-2)


def test_unusable_launch_is_one_line_and_exit_2(launch: Launch) -> None:
    environ = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    done = launch(TRAIN, **environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "trainers.train: error: --batch-size 64 cannot be divided among 3 devices in 1 pass(es):"
        " use 63 or 66.\n"
    )


def test_older_attempt_ends_with_75(launch: Launch, tmp_path: pathlib.Path) -> None:
    (tmp_path / "attempt.0.1").touch()
    done = launch(TRAIN, ORCHESTRATOR_RUN_DIR=str(tmp_path), ORCHESTRATOR_ATTEMPT="0")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr == (
        "trainers.train: error: attempt 1 of this job has started: attempt 0 writes no more.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["attempt.0.1"]


def test_throughput_equals_an_outside_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    # Samples: rows passed to the model; time: another clock around the training of each epoch.
    counted: dict[str, float] = {"samples": 0, "seconds": 0}
    train_epoch = train.Trainer.train_epoch

    def timed(self: train.Trainer) -> Any:
        begun = time.monotonic()
        result = train_epoch(self)
        counted["seconds"] += time.monotonic() - begun
        return result

    def count(model: Any, inputs: Any) -> None:
        counted["samples"] += len(inputs[0]) if model.training else 0

    monkeypatch.setattr(train.Trainer, "train_epoch", timed)
    trainer = one_rank.make([
        "--epochs=2", "--batch-size=100", f"--run-dir={tmp_path}",
        "--dataset=synthetic", "--synthetic-shape=3,32,32", "--synthetic-samples=4050",
    ])  # fmt: skip
    trainer.model.register_forward_pre_hook(count)
    assert trainer.train() is None
    trainer.outputs.close()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["num_samples"] == counted["samples"] == 2 * 4050
    outside = counted["samples"] / counted["seconds"]
    assert result["samples_per_second"] == pytest.approx(outside, rel=0.01)
    (total,) = (
        record["value"]
        for record in read_metrics(tmp_path / "metrics.jsonl")
        if record["name"] == "total_throughput"
    )
    assert total == result["samples_per_second"]


def test_result_profile_and_tensorboard(tmp_path: pathlib.Path) -> None:
    words = ["--device=cpu", "--epochs=1", "--profile-steps=4", f"--run-dir={tmp_path}"]
    try:
        from torch.utils import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="tensorboard"):
            train.run(arguments.parse_arguments([*words, "--tensorboard"]), {})
        train.run(arguments.parse_arguments(words), {})
    else:
        train.run(arguments.parse_arguments([*words, "--tensorboard"]), {})
        assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))
    result = json.loads((tmp_path / "result.json").read_text())
    assert result.keys() == {
        "ending", "finished", "epochs", "steps", "num_samples", "train_seconds", "eval_seconds",
        "checkpoint_seconds", "samples_per_second", "best_val_accuracy", "checkpoint_failure",
        "history", "run", "settings", "arguments", "environment",
    }  # fmt: skip
    assert (result["ending"], result["finished"]) == ("complete", True)
    assert (result["epochs"], result["steps"], result["num_samples"]) == (1, 23, NUM_TRAIN)
    assert result["environment"] == {
        "mode": "single", "launcher": "single", "world_size": 1, "num_nodes": 1, "device": "cpu",
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "torch": str(torch.__version__), "cuda": None, "nccl": None,
        "python": platform.python_version(), "host": socket.gethostname(),
    }  # fmt: skip
    assert result["settings"]["batch_size"] == 64
    assert result["arguments"]["profile_steps"] == "4"
    assert result["run"]["batch"] == (
        "64 images in 23 steps an epoch, 64 on each device in 1 pass(es) a step"
    )
    assert result["checkpoint_failure"] is None
    assert result["best_val_accuracy"] == result["history"][0]["val_accuracy"]
    assert result["history"][0].keys() == {
        "epoch", "train_loss", "train_accuracy", "val_loss", "val_accuracy", "seconds",
        "num_samples", "learning_rate",
    }  # fmt: skip
    by_name = {record["name"]: record for record in read_metrics(tmp_path / "metrics.jsonl")}
    assert by_name["eval_time"]["value"] == result["eval_seconds"] > 0
    assert by_name["checkpoint_time"]["value"] > 0
    assert (by_name["checkpoint_time"]["epoch"], by_name["checkpoint_time"]["step"]) == (1, 23)
    trace = json.loads((tmp_path / "profile" / "trace.json").read_text())
    steps_seen = {e["name"] for e in trace["traceEvents"] if "ProfilerStep" in e["name"]}
    assert steps_seen == {f"ProfilerStep#{number}" for number in range(10, 14)}
    assert "aten::convolution" in (tmp_path / "profile" / "operators.txt").read_text()


# Rank 1 is killed at its fifth step, as by the kernel when memory is short.
DYING = """
import os, pathlib, signal, time
from trainers import train

step = train.Trainer.train_step

def dying(self):
    if self.progress.step == 4 and os.environ["RANK"] == "1":
        pathlib.Path(__file__).with_suffix(".died").write_text(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    step(self)

train.Trainer.train_step = dying
train.main()
"""


def test_dead_rank_ends_the_others_and_is_named(launch: Launch, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "dying.py"
    program.write_text(DYING)
    done = launch([*TORCHRUN, str(program), "--device=cpu"])
    # The clock is the machine's, the same in all processes.
    assert time.monotonic() - float(program.with_suffix(".died").read_text()) < 60
    assert done.returncode == 1
    # Rank 0 reports the lost connection, torchrun the rank that failed first.
    assert (
        "trainers.train: error: rank 0 of 2 ends because another rank exited or cannot be reached:"
        " see the first error of that rank, or check MASTER_ADDR " in done.stderr
    )
    root_cause = done.stderr.partition("Root Cause (first observed failure)")[2]
    assert re.search(r"rank      : 1 \(local_rank: 1\)\n  exitcode  : -9 ", root_cause)


# A bug in the third step, while workers are idle.
FAILING = """
from trainers import train

step = train.Trainer.train_step

def failing(self):
    if self.progress.step == 2:
        raise RuntimeError("a bug")
    step(self)

train.Trainer.train_step = failing
train.main()
"""


def test_workers_do_not_outlive_a_failure(launch: Launch, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "failing.py"
    program.write_text(FAILING)
    words = ["--device=cpu", "--data-path=loader", "--num-workers=2"]
    # The process ends, although Python waits for workers that ignore signals.
    done = launch([str(program), *words])
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: a bug\n")


def test_rank_that_cannot_start_ends_the_others(launch: Launch) -> None:
    # Only rank 0 checks the run folder; the other rank waits for it.
    done = launch([*TORCHRUN, *TRAIN, "--run-dir=/dev/null/run"])
    assert done.returncode == 1
    assert "trainers.train: error: Cannot create the run folder: [Errno 20] " in done.stderr
    # Ended by SIGTERM; after half a minute without an end it would be SIGKILL.
    assert re.search(r"rank      : 1 \(local_rank: 1\)\n  exitcode  : -15 ", done.stderr)
