"""GPUs are read with nvidia-smi, which is simulated here, and not read if there are none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from tests.trainer import forked  # noqa: E402
from trainers import distributed  # noqa: E402
from trainers.tools import monitor  # noqa: E402

pytestmark = pytest.mark.trainer


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "INTERVAL_SECONDS", 0.01)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _dist(local_rank: int = 0, local_world_size: int = 2) -> distributed.DistInfo:
    return forked.dist_info(local_rank, local_world_size)


def _nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a simulated nvidia-smi first in PATH; it writes its arguments to the returned file."""
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"$0.arguments"\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder / "nvidia-smi.arguments"


def test_each_reading_is_appended_until_the_monitor_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = "timestamp, index, name, utilization.gpu [%]"
    _nvidia_smi(
        tmp_path, monkeypatch, f'case "$*" in *noheader*) ;; *) echo "{header}" ;; esac\necho row'
    )
    monkeypatch.setattr(monitor, "visible_uuids", lambda: ["GPU-c", "GPU-d"])
    path = tmp_path / "gpu.node1.csv"
    # The second attempt of a job appends to the file of the first.
    for count in (3, 6):
        with monitor.watch(_dist(), tmp_path / "gpu.node1"):
            _wait_for(lambda count=count: path.exists() and path.read_text().count("\n") >= count)
    lines = path.read_text().splitlines()
    assert (lines[0], set(lines[1:])) == (header, {"row"})
    assert not any(thread.name == "gpu-monitor" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo No devices were found; exit 6", "nvidia-smi failed: No devices were found"),
        ("", "[Errno 21] Is a directory: '{}/gpu.node1.csv'"),
    ],
)
def test_a_failure_stops_only_the_monitor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    message: str,
) -> None:
    if not script:
        (tmp_path / "gpu.node1.csv").mkdir()
    _nvidia_smi(tmp_path, monkeypatch, script)
    monkeypatch.setattr(monitor, "visible_uuids", lambda: ["GPU-c", "GPU-d"])
    with monitor.watch(_dist(), tmp_path / "gpu.node1"):
        pass
    assert capsys.readouterr().err == (
        f"trainers.tools.monitor: GPU monitoring stopped: {message.format(tmp_path)}\n"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_monitored(tmp_path: Path) -> None:
    with monitor.watch(_dist(), tmp_path / "gpu.node1"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_without_nvidia_smi_nothing_is_monitored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(monitor, "visible_uuids", lambda: ["GPU-c", "GPU-d"])
    with monitor.watch(_dist(), tmp_path / "gpu.node1"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("uuids", "local_rank", "names"),
    [
        (["GPU-c", "GPU-d"], 0, ["gpu.node1.csv"]),
        (["GPU-c", "GPU-d"], 1, []),
        # srun --gpus-per-task: each rank sees its own GPU alone.
        (["GPU-d"], 1, ["gpu.node1.1.csv"]),
    ],
)
def test_each_gpu_is_monitored_by_one_rank(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    uuids: list[str],
    local_rank: int,
    names: list[str],
) -> None:
    (tmp_path / "bin").mkdir()
    arguments = _nvidia_smi(tmp_path / "bin", monkeypatch, "echo row")
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(monitor, "visible_uuids", lambda: uuids)
    with monitor.watch(_dist(local_rank), folder / "gpu.node1"):
        _wait_for(lambda: all((folder / name).exists() for name in names))
    assert [path.name for path in folder.iterdir()] == names
    assert arguments.exists() == bool(names)
    if names:
        assert arguments.read_text().splitlines() == [
            "--query-gpu=timestamp,index,name,utilization.gpu,utilization.memory,memory.total,"
            "memory.used,power.draw",
            f"--id={','.join(uuids)}",
            "--format=csv,nounits",
        ]
