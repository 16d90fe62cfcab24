"""GPUs are read through NVML or nvidia-smi, both simulated here, and not read if there are none.

The text of nvidia-smi is in the form that its man page gives for --format=csv,noheader,nounits.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import monitor, ranks  # noqa: E402

pytestmark = pytest.mark.trainer

MIB = 1 << 20


class FakeNvml(types.ModuleType):
    """NVML of a node with four GPUs, of which a job may use two; the second is a MIG slice."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.started = 0

    def nvmlInit(self) -> None:
        self.started += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid not in ("GPU-c", "GPU-d"):
            raise self.NVMLError("Not Found")
        return {"GPU-c": 2, "GPU-d": 3}[uuid]

    def nvmlDeviceGetIndex(self, handle: int) -> int:
        return handle

    def nvmlDeviceGetName(self, handle: int) -> bytes | str:
        # Text since nvidia-ml-py 11.495, bytes before.
        return b"NVIDIA H100" if handle == 2 else "NVIDIA H100 MIG 1g.10gb"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(total=81559 * MIB, used=handle * 1000 * MIB)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> types.SimpleNamespace:
        if handle == 3:
            raise self.NVMLError("Not Supported")
        return types.SimpleNamespace(gpu=97, memory=41)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle == 3:
            raise self.NVMLError("Not Supported")
        return 412345


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _place(local_rank: int = 0, local_world_size: int = 2) -> ranks.Ranks:
    return ranks.Ranks(
        launcher=ranks.Launcher.TORCHRUN,
        rank=local_rank,
        local_rank=local_rank,
        world_size=local_world_size,
        local_world_size=local_world_size,
        num_nodes=1,
    )


def test_nvml_reads_only_the_gpus_of_the_job(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    watched = monitor.Monitor(
        monitor.nvml_reader(FakeNvml(), ["GPU-c", "GPU-d"]), path, interval_seconds=0.01
    )
    watched.start()
    _wait_for(lambda: path.exists() and path.read_text().count("\n") >= 5)
    summaries = watched.stop()
    header, first, second, *_ = path.read_text().splitlines()
    assert header == (
        "timestamp,index,name,utilization.gpu [%],utilization.memory [%],"
        "memory.total [MiB],memory.used [MiB],power.draw [W]"
    )
    assert first.split(",")[1:] == ["2", "NVIDIA H100", "97", "41", "81559", "2000", "412.345"]
    assert second.split(",")[1:] == [
        "3", "NVIDIA H100 MIG 1g.10gb", "[N/A]", "[N/A]", "81559", "3000", "[N/A]"
    ]  # fmt: skip
    assert [(each.mean_utilization_percent, each.peak_memory_mib) for each in summaries] == [
        (97, 2000),
        (None, 3000),
    ]
    # Stopped is stopped: nothing more is written.
    size = path.stat().st_size
    time.sleep(0.05)
    assert path.stat().st_size == size


def test_summary_is_mean_and_peak(tmp_path: Path) -> None:
    texts = iter(
        [
            "2026/11/21 12:00:00.000, 0, NVIDIA H200, 10, 5, 143771, 500, 70.5\n",
            "2026/11/21 12:00:05.000, 0, NVIDIA H200, 90, 5, 143771, 700, [N/A]\n",
            "2026/11/21 12:00:10.000, 0, NVIDIA H200, 50, 5, 143771, 600, 71\n",
        ]
    )
    path = tmp_path / "gpu.csv"
    watched = monitor.Monitor(
        lambda: monitor.parse_nvidia_smi(next(texts, "")), path, interval_seconds=0.01
    )
    watched.start()
    _wait_for(lambda: path.exists() and path.read_text().count("\n") == 4)
    (summary,) = watched.stop()
    assert summary.mean_utilization_percent == 50
    assert (summary.peak_memory_mib, summary.memory_total_mib) == (700, 143771)


@pytest.mark.parametrize("pynvml", [None, FakeNvml()])
def test_nvidia_smi_is_the_fallback_of_nvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pynvml: types.ModuleType | None
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" >"$0.arguments"\n'
        'echo "2026/11/21 12:00:00.000, 2, NVIDIA GH200 120GB, 12, [N/A], 97871, 4321, [N/A]"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    reader = monitor.find_reader(["GPU-c", "GPU-x"])
    assert reader is not None
    (reading,) = reader()
    assert (reading.index, reading.name) == (2, "NVIDIA GH200 120GB")
    assert (reading.utilization_gpu_percent, reading.utilization_memory_percent) == (12, None)
    assert Path(f"{program}.arguments").read_text().splitlines() == [
        "--query-gpu=timestamp,index,name,utilization.gpu,utilization.memory,memory.total,"
        "memory.used,power.draw",
        "--format=csv,noheader,nounits",
        "--id=GPU-c,GPU-x",
    ]


def test_values_that_the_gpu_does_not_report(tmp_path: Path) -> None:
    # GPUs that share the host's memory (GB10) report no memory; older drivers and MIG slices print
    # other words.
    text = (
        "2026/11/21 12:00:00.000, 0, NVIDIA GB10, 37, [N/A], [N/A], [N/A], 11.5\n"
        "2026/11/21 12:00:00.000, 1, Tesla K80, [Not Supported], N/A, 11441, [Unknown Error],"
        " [Not Supported]\n"
    )
    path = tmp_path / "gpu.csv"
    watched = monitor.Monitor(lambda: monitor.parse_nvidia_smi(text), path, interval_seconds=0.01)
    watched.start()
    _wait_for(lambda: path.exists() and path.read_text().count("\n") >= 5)
    lines = [monitor.summary_line("node1", summary) for summary in watched.stop()]
    assert lines == [
        "GPU 0 of node1 (NVIDIA GB10): mean utilization 37 %, peak memory unknown",
        "GPU 1 of node1 (Tesla K80): utilization unknown, peak memory unknown",
    ]
    rows = [line.split(",")[1:] for line in path.read_text().splitlines()[1:3]]
    assert rows == [
        ["0", "NVIDIA GB10", "37", "[N/A]", "[N/A]", "[N/A]", "11.5"],
        ["1", "Tesla K80", "[N/A]", "[N/A]", "11441", "[N/A]", "[N/A]"],
    ]


def test_nvml_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(handle: int) -> types.SimpleNamespace:
        raise nvml.NVMLError("Not Supported")

    nvml = FakeNvml()
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", no_memory)
    (reading,) = monitor.nvml_reader(nvml, ["GPU-c"])()
    assert (reading.memory_total_mib, reading.memory_used_mib) == (None, None)
    assert reading.utilization_gpu_percent == 97


def test_a_failing_reader_only_stops_the_monitor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = monitor.Monitor(lambda: monitor.parse_nvidia_smi("No devices were found"), tmp_path)
    watched.start()
    assert watched.stop() == []
    watched = monitor.Monitor(
        lambda: monitor.parse_nvidia_smi("No devices were found"), tmp_path / "gpu.csv"
    )
    watched.start()
    assert watched.stop() == []
    assert capsys.readouterr().err.endswith(
        "trainers.monitor: GPU monitoring stopped: nvidia-smi printed 'No devices were found'\n"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nothing_is_monitored(tmp_path: Path) -> None:
    with monitor.watch(_place(), tmp_path, "gpu", "node1"):
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
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.setattr(monitor, "visible_uuids", lambda: uuids)
    with monitor.watch(_place(local_rank), tmp_path, "gpu", "node1"):
        _wait_for(lambda: all((tmp_path / name).exists() for name in names))
    assert [path.name for path in tmp_path.iterdir()] == names
    lines = [
        "GPU 2 of node1 (NVIDIA H100): mean utilization 97 %, peak memory 2000 of 81559 MiB",
        "GPU 3 of node1 (NVIDIA H100 MIG 1g.10gb): utilization unknown,"
        " peak memory 3000 of 81559 MiB",
    ]
    printed = capsys.readouterr().out.splitlines()
    assert printed == (lines[-len(uuids) :] if names else [])
