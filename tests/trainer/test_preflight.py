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
         "--run-dir=.", f"--largest-bytes={1 << 20}"]
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[-1] == "preflight: ready"
    sizes = [line.split(":")[1][:9].strip() for line in lines if " all-reduce: " in line]
    assert sizes == [
        "1 B", "4 B", "16 B", "64 B", "256 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB",
        "1 MiB",
    ]  # fmt: skip
    assert all(re.search(r" [0-9.]+ us +[0-9.]+ GB/s$", each) for each in lines if "all-r" in each)
    (data,) = (line for line in lines if " data: " in line)
    assert data.startswith(
        "ok       data: digits, 1438 samples for training and 359 for testing, fingerprint "
    )
    assert any(line.startswith("ok       software: Python 3.") for line in lines)
    assert "ok       clock: 1 node(s) within 1 s" in lines


def test_missing_parts_fail_the_preflight(launch: Launch, tmp_path: Path) -> None:
    result = launch(
        ["-m", "trainers.tools.preflight", "--device=cpu", "--dataset=cifar100",
         f"--data-dir={tmp_path}", f"--run-dir={tmp_path}/none"]
    )  # fmt: skip
    assert result.returncode == 1
    assert f"FAILED   data: cifar100 cannot be read from {tmp_path} (" in result.stdout
    assert f"FAILED   run folder: [Errno 2] No such file or directory: '{tmp_path}/none/" in (
        result.stdout
    )
    assert result.stdout.endswith("preflight: 2 check(s) FAILED\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_fails_the_preflight(launch: Launch) -> None:
    result = launch(["-m", "trainers.tools.preflight", "--device=cuda"])
    assert result.returncode == 2
    assert result.stdout.startswith("FAILED   start: --device cuda, but PyTorch sees no GPU")
    result = launch(["-m", "trainers.tools.preflight"], SLURM_GPUS_ON_NODE="4")
    assert result.returncode == 1
    assert "but the job has GPUs (4): install a CUDA build" in result.stdout


NO_GPU_BUILD = "install a CUDA build of PyTorch, use --nv in a container, or set --device cpu"


@pytest.mark.parametrize(
    ("variables", "level", "problem"),
    [
        ({}, "ok", ""),
        ({"CUDA_VISIBLE_DEVICES": ""}, "ok", ""),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "ok", ""),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, "ok", ""),
        ({"SLURM_GPUS_ON_NODE": "0"}, "ok", ""),
        ({"SLURM_GPUS_ON_NODE": "0", "CUDA_VISIBLE_DEVICES": "0"}, "ok", ""),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "FAILED", f", but the job has GPUs (0): {NO_GPU_BUILD}"),
        (
            {"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"},
            "FAILED",
            ", but the job has GPUs (GPU-8932f937-d72c-4106-c12f-20bd9faed9f6): " + NO_GPU_BUILD,
        ),
        (
            {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,1,2,3"},
            "FAILED",
            f", but the job has GPUs (4): {NO_GPU_BUILD}",
        ),
        (
            {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "-1"},
            "warning",
            "; the job has GPUs (4), but CUDA_VISIBLE_DEVICES=-1 hides them: unset it, or set"
            " --device cpu",
        ),
    ],
)
def test_gpus_of_the_job_that_pytorch_does_not_see(
    variables: dict[str, str], level: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    outcome = preflight.check_device(DIST, torch.device("cpu"), "auto")
    threads = torch.get_num_threads()
    assert (outcome.level, outcome.text) == (level, f"CPU, {threads} thread(s) per rank{problem}")
    # The user chose the CPU.
    assert preflight.check_device(DIST, torch.device("cpu"), "cpu").level == "ok"


def test_one_wrong_element_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupt(tensor: torch.Tensor) -> None:
        if tensor.numel() > 1000:
            tensor[777] += 1

    monkeypatch.setattr(torch.distributed, "all_reduce", corrupt)
    right, wrong, odd = (
        preflight.check_all_reduce(DIST, torch.device("cpu"), size) for size in (1, 4096, 4098)
    )
    assert right.level == preflight.OK and "WRONG" not in right.text
    # The first all-reduce and five repeats.
    assert wrong.level == odd.level == preflight.FAILED
    assert "GB/s  6 WRONG" in wrong.text and "GB/s  6 WRONG" in odd.text
    assert "NCCL_PROTO=^LL128" in wrong.text


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    assert preflight.bus_bandwidth(1_000_000, 0.001, 4) == pytest.approx(1.5e9)
    assert preflight.all_reduce_sizes(128 << 20)[-2:] == [64 << 20, 128 << 20]


def _sif(code: bytes) -> bytes:
    launch_script = b"#!/usr/bin/env run-singularity\n\0"
    return launch_script.ljust(32, b"\0") + b"SIF_MAGIC\0" + b"01\0" + code + b"\0" + bytes(80)


def test_an_image_for_another_architecture_fails(tmp_path: Path) -> None:
    image = tmp_path / "pytorch.sif"
    image.write_bytes(_sif(b"04"))
    assert preflight.check_image(image, "x86_64").line() == (
        f"FAILED   image: {image} is for aarch64, this node is x86_64: build it for x86_64"
    )
    assert preflight.check_image(image, "aarch64").level == preflight.OK
    image.write_bytes(b"#!/bin/sh\n")
    assert preflight.check_image(image, "x86_64").level == preflight.WARNING


def test_equal_results_of_ranks_are_reported_once() -> None:
    good = preflight.Outcome(preflight.OK, "device", "CPU")
    bad = preflight.Outcome(preflight.FAILED, "device", "none")
    assert preflight.merge([[("a rank 0", good)], [("b rank 1", good)]]) == [good]
    cores = preflight.Outcome(preflight.OK, "cores", "4 core(s)")
    merged = preflight.merge(
        [[("a rank 0", good), ("a rank 0", cores)], [("b rank 1", bad), ("b rank 1", cores)]]
    )
    assert [each.line() for each in merged] == [
        "ok       device: CPU (a rank 0)",
        "FAILED   device: none (b rank 1)",
        "ok       cores: 4 core(s)",
    ]
