"""Preflight: results of the checks, and a run with two ranks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import distributed  # noqa: E402
from trainers.tools import preflight  # noqa: E402

pytestmark = pytest.mark.trainer

DIST = distributed.read_dist_info({})
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
            "--local-addr=127.0.0.1"]  # fmt: skip

Launch = Callable[..., subprocess.CompletedProcess[str]]


def test_two_ranks_are_ready(launch: Launch) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    result = launch(
        [*TORCHRUN, "-m", "trainers.tools.preflight", "--device=cpu", "--dataset=digits",
         f"--largest-bytes={1 << 20}"]
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[-1] == "preflight: ready"
    sizes = [line.split(":")[1].split()[0] for line in lines if " all-reduce: " in line]
    assert sizes == ["4", "16", "64", "256", "1,024", "4,096", "16,384", "65,536", "262,144",
                     "1,048,576"]  # fmt: skip
    assert all(re.search(r" [0-9.]+ us +[0-9.]+ GB/s$", each) for each in lines if "all-r" in each)
    (data,) = (line for line in lines if " data: " in line)
    assert data.startswith(
        "ok       data: digits, 1438 samples for training and 359 for testing, fingerprint "
    )
    assert any(line.startswith("ok       software: Python 3.") for line in lines)


def test_missing_data_fails_the_preflight(launch: Launch, tmp_path: Path) -> None:
    result = launch(
        ["-m", "trainers.tools.preflight", "--device=cpu", "--dataset=cifar100",
         f"--data-dir={tmp_path}"]
    )  # fmt: skip
    assert result.returncode == 1
    assert f"FAILED   data: cifar100 cannot be read from {tmp_path} (" in result.stdout
    assert result.stdout.endswith("preflight: 1 check(s) FAILED\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_fails_the_preflight(launch: Launch) -> None:
    result = launch(["-m", "trainers.tools.preflight", "--device=cuda"])
    assert result.returncode == 2
    assert result.stdout.startswith(
        "FAILED   start: 1 rank(s) on this node, but PyTorch sees 0 GPU(s)"
    )
    result = launch(["-m", "trainers.tools.preflight"], SLURM_GPUS_ON_NODE="4")
    assert result.returncode == 1
    assert "but the job has GPUs (4): install a CUDA build" in result.stdout


@pytest.mark.parametrize("gpus", [None, "0", "4"])
def test_gpus_of_the_job_that_pytorch_does_not_see(
    gpus: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_GPUS_ON_NODE", raising=False)
    if gpus is not None:
        monkeypatch.setenv("SLURM_GPUS_ON_NODE", gpus)
    outcome = preflight.check_device(DIST, torch.device("cpu"), "auto")
    text = f"CPU, {torch.get_num_threads()} thread(s) per rank"
    if gpus == "4":
        text += (
            ", but the job has GPUs (4): install a CUDA build of PyTorch, use --nv in a container,"
            " unset CUDA_VISIBLE_DEVICES, or set --device cpu"
        )
    assert (outcome.level, outcome.text) == ("FAILED" if gpus == "4" else "ok", text)
    # The user chose the CPU.
    assert preflight.check_device(DIST, torch.device("cpu"), "cpu").level == "ok"


def test_one_wrong_element_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupt(tensor: torch.Tensor) -> None:
        if tensor.numel() > 1000:
            tensor[777] += 1

    monkeypatch.setattr(torch.distributed, "all_reduce", corrupt)
    right, wrong = (
        preflight.check_all_reduce(DIST, torch.device("cpu"), size) for size in (4, 4096)
    )
    assert right.level == preflight.OK and "WRONG" not in right.text
    # The first all-reduce and five repeats.
    assert wrong.level == preflight.FAILED
    assert "GB/s  6 WRONG" in wrong.text
    assert "NCCL_PROTO=^LL128" in wrong.text


def test_equal_results_of_ranks_are_reported_once() -> None:
    good = preflight.Outcome(preflight.OK, "device", "CPU")
    bad = preflight.Outcome(preflight.FAILED, "device", "none")
    assert [*preflight.merge([("a rank 0", [good]), ("b rank 1", [good])])] == [good]
    software = [preflight.Outcome(preflight.OK, "software", f"Python 3.{n}") for n in (11, 12)]
    merged = preflight.merge([("a rank 0", [good, software[0]]), ("b rank 1", [bad, software[1]])])
    assert [str(each) for each in merged] == [
        "ok       device: CPU (a rank 0)",
        "FAILED   device: none (b rank 1)",
        "ok       software: Python 3.11 (a rank 0)",
        "ok       software: Python 3.12 (b rank 1)",
        "FAILED   software: use the same environment on all nodes",
    ]
