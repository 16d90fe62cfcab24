"""Configurations are compared by their printed throughput; a failure does not affect the others."""

from __future__ import annotations

import os
import sys

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers.tools import benchmark  # noqa: E402

pytestmark = pytest.mark.trainer

# Source S2's lines, with the figures of its example output.
PRINTED = """\
Epoch 95/97 completed in 1.344 seconds
Validation Loss: 1.4165, Validation Accuracy: 0.6663
Epoch Throughput: 36577.311 images/second
Epoch 96/97 completed in 1.312 seconds
Validation Loss: 1.3927, Validation Accuracy: 0.6686
Epoch Throughput: 37470.264 images/second
Epoch 97/97 completed in 1.315 seconds
Validation Loss: 1.3615, Validation Accuracy: 0.6757
Epoch Throughput: 37378.521 images/second
"""


def _arm(name: str, program: str) -> benchmark.Arm:
    return benchmark.Arm(name=name, command=(sys.executable, "-c", program))


def test_the_first_epoch_does_not_count() -> None:
    outcome = benchmark.read_output(PRINTED)
    assert outcome.samples_per_second == (37470.264, 37378.521)
    assert (outcome.loss, outcome.accuracy) == (1.3615, 0.6757)
    assert benchmark.read_output(PRINTED[:130]).failure.startswith("fewer than two epochs")


def test_ratios_are_to_the_first_and_a_failure_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    twice = PRINTED.replace("37470.264", "74940.528").replace("37378.521", "74757.042")
    memory = "raise SystemExit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate')"
    arms = [
        _arm("S2", f"print({PRINTED!r})"),
        _arm("twice", f"print({twice!r})"),
        _arm("too large", memory),
    ]
    outcomes = benchmark.compare(arms, repeats=2, environ=os.environ)
    assert benchmark.table(arms, outcomes) == (
        "                          samples/s        min        max  ratio  val loss\n"
        "S2                          37424.4    37378.5    37470.3   1.00    1.3615\n"
        "twice                       74848.8    74757.0    74940.5   2.00    1.3615\n"
        "too large                torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
    )
    progress = capfd.readouterr().err.splitlines()
    # The configurations alternate.
    assert progress[1::2][:3] == [
        "    37424.4 samples/s",
        "    74848.8 samples/s",
        "    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate",
    ]
    assert [line.split(":")[0] for line in progress[::2]] == [
        "1/2 S2", "1/2 twice", "1/2 too large", "2/2 S2", "2/2 twice", "2/2 too large",
    ]  # fmt: skip


def test_ddp_gets_a_rank_for_each_gpu_and_dp_one_process() -> None:
    single, dp, ddp = benchmark.make_arms("dp-ddp", ["--epochs=2"], 4)
    assert single.command[1:] == ("-m", "trainers.train", "--epochs=2", "--mode=single")
    assert dp.command[1:] == (
        "-m", "trainers.train", "--epochs=2", "--mode=dp", "--gpu-ids=0,1,2,3"
    )  # fmt: skip
    assert ddp.command[1:] == (
        "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
        "--nproc-per-node=4",
        "-m", "trainers.train", "--epochs=2", "--mode=ddp",
    )  # fmt: skip


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_dp_against_ddp_needs_two_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["dp-ddp"]) == 2
    assert "this machine has 0: run it in a job with 2 or more GPUs." in capsys.readouterr().err


def test_two_precisions_are_trained_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--dataset=synthetic", "--synthetic-shape=20", "--synthetic-samples=512"]
    assert (
        benchmark.main(["precision", "--repeats=1", "--model=mlp", "--device=cpu", *arguments]) == 0
    )
    machine, _, fp32, bf16 = capsys.readouterr().out.splitlines()[:4]
    assert f"torch {torch.__version__}" in machine
    assert fp32.startswith("fp32 ") and " 1.00 " in fp32
    assert bf16.startswith("bf16 ")


def test_the_variables_of_a_job_do_not_reach_the_runs() -> None:
    job = {"ORCHESTRATOR_RUN_DIR": "/run", "SLURM_STEP_ID": "0", "RANK": "1", "LOCAL_RANK": "1"}
    program = "import os, sys; print(*sorted({*sys.argv} & {*os.environ}))"
    output, failure = benchmark.run_command(
        [sys.executable, "-c", program, "KEPT", *job],
        {**os.environ, **job, "KEPT": "1"},
        seconds=60,
    )
    assert (output, failure) == ("KEPT\n", "")


def test_a_run_that_does_not_end_is_stopped() -> None:
    program = "import time; time.sleep(600)"
    outcome = benchmark.run_command([sys.executable, "-c", program], os.environ, seconds=0.5)
    assert outcome == ("", "not finished after 0.5 s")
