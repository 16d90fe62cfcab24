"""GPUs are read with nvidia-smi, which is simulated here, and not read if there are none.

The text of nvidia-smi is in the form that its man page gives for --format=csv,noheader,nounits.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import distributed  # noqa: E402
from trainers.tools import monitor  # noqa: E402

pytestmark = pytest.mark.trainer

# Two GPUs of a node; the second is a MIG slice.
TWO = """\
2026/11/21 12:00:00.000, 2, NVIDIA H100, 97, 41, 81559, 2000, 412.34
2026/11/21 12:00:00.000, 3, NVIDIA H100 MIG 1g.10gb, [N/A], [N/A], 81559, 3000, [N/A]
"""


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "INTERVAL_SECONDS", 0.01)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _dist(local_rank: int = 0, local_world_size: int = 2) -> distributed.DistInfo:
    return distributed.DistInfo(
        launcher=distributed.Launcher.TORCHRUN,
        rank=local_rank,
        local_rank=local_rank,
        world_size=local_world_size,
        local_world_size=local_world_size,
        num_nodes=1,
    )


def _nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a simulated nvidia-smi first in PATH; it writes its arguments to the returned file."""
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"$0.arguments"\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder / "nvidia-smi.arguments"


def test_each_reading_is_a_row_until_the_monitor_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    with monitor.record(lambda: TWO, path, "node1"):
        _wait_for(lambda: path.exists() and path.read_text().count("\n") >= 5)
    assert path.read_text().splitlines()[:3] == [
        "timestamp,index,name,utilization.gpu [%],utilization.memory [%],"
        "memory.total [MiB],memory.used [MiB],power.draw [W]",
        "2026/11/21 12:00:00.000,2,NVIDIA H100,97,41,81559,2000,412.34",
        "2026/11/21 12:00:00.000,3,NVIDIA H100 MIG 1g.10gb,[N/A],[N/A],81559,3000,[N/A]",
    ]
    assert not any(thread.name == "gpu-monitor" for thread in threading.enumerate())


def test_the_line_has_mean_and_peak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = iter(
        [
            "2026/11/21 12:00:00.000, 0, NVIDIA H200, 10, 5, 143771, 500, 70.5\n",
            "2026/11/21 12:00:05.000, 0, NVIDIA H200, 90, 5, 143771, 700, [N/A]\n",
            "2026/11/21 12:00:10.000, 0, NVIDIA H200, 50, 5, 143771, 600, 71\n",
        ]
    )
    path = tmp_path / "gpu.csv"
    with monitor.record(lambda: next(texts, ""), path, "node1"):
        _wait_for(lambda: path.exists() and path.read_text().count("\n") == 4)
    assert capsys.readouterr().out == (
        "GPU 0 of node1 (NVIDIA H200): mean utilization 50 %, peak memory 700 of 143771 MiB\n"
    )


def test_values_that_the_gpu_does_not_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GPUs that share the host's memory (GB10) report no memory; older drivers and MIG slices print
    # other words.
    text = (
        "2026/11/21 12:00:00.000, 0, NVIDIA GB10, 37, [N/A], [N/A], [N/A], 11.5\n"
        "2026/11/21 12:00:00.000, 1, Tesla K80, [Not Supported], N/A, 11441, [Unknown Error],"
        " [Not Supported]\n"
    )
    path = tmp_path / "gpu.csv"
    with monitor.record(lambda: text, path, "node1"):
        _wait_for(lambda: path.exists() and path.read_text().count("\n") >= 5)
    assert capsys.readouterr().out.splitlines() == [
        "GPU 0 of node1 (NVIDIA GB10): mean utilization 37 %, peak memory unknown",
        "GPU 1 of node1 (Tesla K80): utilization unknown, peak memory unknown",
    ]
    rows = [line.split(",")[1:] for line in path.read_text().splitlines()[1:3]]
    assert rows == [
        ["0", "NVIDIA GB10", "37", "[N/A]", "[N/A]", "[N/A]", "11.5"],
        ["1", "Tesla K80", "[N/A]", "[N/A]", "11441", "[N/A]", "[N/A]"],
    ]


def test_a_failure_stops_only_the_monitor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _nvidia_smi(tmp_path, monkeypatch, "echo No devices were found; exit 6")

    def messages(nvidia_smi: Callable[[], str], path: Path) -> str:
        with monitor.record(nvidia_smi, path, "node1"):
            pass
        printed = capsys.readouterr()
        assert printed.out == ""
        return printed.err

    begin = "trainers.tools.monitor: GPU monitoring stopped: "
    assert messages(lambda: TWO, tmp_path) == (f"{begin}[Errno 21] Is a directory: '{tmp_path}'\n")
    assert messages(lambda: "[Insufficient Permissions]", tmp_path / "gpu.csv") == (
        f"{begin}nvidia-smi printed '[Insufficient Permissions]'\n"
    )
    run = functools.partial(monitor.run_nvidia_smi, "nvidia-smi", ["GPU-c"])
    assert messages(run, tmp_path / "gpu.csv") == (
        f"{begin}nvidia-smi failed with exit code 6: No devices were found\n"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_monitored(tmp_path: Path) -> None:
    with monitor.watch(_dist(), tmp_path, "gpu", "node1"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_without_nvidia_smi_nothing_is_monitored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(monitor, "visible_uuids", lambda: ["GPU-c", "GPU-d"])
    with monitor.watch(_dist(), tmp_path, "gpu", "node1"):
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
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = TWO.splitlines()[-len(uuids) :]
    (tmp_path / "bin").mkdir()
    script = "\n".join(f"echo '{row}'" for row in rows)
    arguments = _nvidia_smi(tmp_path / "bin", monkeypatch, script)
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(monitor, "visible_uuids", lambda: uuids)
    with monitor.watch(_dist(local_rank), folder, "gpu", "node1"):
        _wait_for(lambda: all((folder / name).exists() for name in names))
    assert [path.name for path in folder.iterdir()] == names
    lines = [
        "GPU 2 of node1 (NVIDIA H100): mean utilization 97 %, peak memory 2000 of 81559 MiB",
        "GPU 3 of node1 (NVIDIA H100 MIG 1g.10gb): utilization unknown,"
        " peak memory 3000 of 81559 MiB",
    ]
    printed = capsys.readouterr().out.splitlines()
    assert printed == (lines[-len(uuids) :] if names else [])
    assert arguments.exists() == bool(names)
    if names:
        assert arguments.read_text().splitlines() == [
            "--query-gpu=timestamp,index,name,utilization.gpu,utilization.memory,memory.total,"
            "memory.used,power.draw",
            "--format=csv,noheader,nounits",
            f"--id={','.join(uuids)}",
        ]
