"""Utilization and memory of the GPUs of this run: eight fields per GPU, every few seconds.

Read through NVML (package nvidia-ml-py) if it is installed, else with nvidia-smi; the file has the
format of nvidia-smi's CSV. Only the GPUs visible to this process are read, by UUID: NVML numbers
all GPUs of the node, CUDA only those in CUDA_VISIBLE_DEVICES.
"""

import contextlib
import csv
import dataclasses
import datetime
import importlib
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence

import torch

from trainers import ranks

INTERVAL_SECONDS = 5.0
MIB = 1 << 20
QUERY = (
    "timestamp,index,name,utilization.gpu,utilization.memory,memory.total,memory.used,power.draw"
)
HEADER = (
    "timestamp",
    "index",
    "name",
    "utilization.gpu [%]",
    "utilization.memory [%]",
    "memory.total [MiB]",
    "memory.used [MiB]",
    "power.draw [W]",
)
# Written for a value that the device does not report, such as the use of a MIG slice.
NOT_AVAILABLE = "[N/A]"
# What nvidia-smi prints for it: [N/A], [Not Supported], [Unknown Error], [GPU requires reset].
UNREPORTED = re.compile(r"\[.*\]|N/A")
# nvidia-smi can hang if the driver has failed.
NVIDIA_SMI_SECONDS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """State of one GPU at one time."""

    #: As nvidia-smi prints it, `2026/11/21 12:34:56.789`, in local time.
    timestamp: str
    #: NVML's index of the GPU on the node.
    index: int
    #: Product name.
    name: str
    #: Share of the last sample period in which a kernel ran; None if not reported.
    utilization_gpu_percent: int | None
    #: Share of the last sample period in which memory was read or written.
    utilization_memory_percent: int | None
    #: Total memory; None if not reported, as by GPUs that share the memory of the host.
    memory_total_mib: int | None
    #: Memory used by all processes; None if not reported.
    memory_used_mib: int | None
    #: Power draw; None if not reported, as for a MIG slice.
    power_watts: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Statistics of one GPU over the monitored time."""

    #: NVML's index of the GPU on the node.
    index: int
    #: Product name.
    name: str
    #: Mean of the readings; None if the device reports none.
    mean_utilization_percent: float | None
    #: The largest reading; None if the device reports none.
    peak_memory_mib: int | None
    #: Total memory; None if not reported.
    memory_total_mib: int | None


#: Reads all monitored GPUs once.
Reader = Callable[[], list[Reading]]


def visible_uuids() -> list[str]:
    """Return the UUIDs of the GPUs that are visible to this process."""
    if not torch.cuda.is_available():
        return []
    count = torch.cuda.device_count()
    return [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(count)]


def find_reader(uuids: Sequence[str]) -> Reader | None:
    """Return a reader for these GPUs, or None without GPUs, NVML and nvidia-smi."""
    if not uuids:
        return None
    with contextlib.suppress(ImportError):
        pynvml = importlib.import_module("pynvml")
        # NVML has another UUID for a MIG slice, and may not match the driver.
        with contextlib.suppress(pynvml.NVMLError):
            return nvml_reader(pynvml, uuids)
    if program := shutil.which("nvidia-smi"):
        command = nvidia_smi_command(program, uuids)
        return lambda: parse_nvidia_smi(run_nvidia_smi(command))
    return None


def nvml_reader(pynvml: types.ModuleType, uuids: Sequence[str]) -> Reader:
    """Return a reader that uses NVML."""
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]

    def read() -> list[Reading]:
        now = datetime.datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        readings = []
        for handle in handles:
            name = pynvml.nvmlDeviceGetName(handle)
            gpu = of_memory = total = used = power = None
            with contextlib.suppress(pynvml.NVMLError):
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
                total, used = memory.total // MIB, memory.used // MIB
            with contextlib.suppress(pynvml.NVMLError):
                rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
                gpu, of_memory = rates.gpu, rates.memory
            with contextlib.suppress(pynvml.NVMLError):
                power = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000.0
            readings.append(
                Reading(
                    timestamp=now,
                    index=pynvml.nvmlDeviceGetIndex(handle),
                    name=name.decode() if isinstance(name, bytes) else name,
                    utilization_gpu_percent=gpu,
                    utilization_memory_percent=of_memory,
                    memory_total_mib=total,
                    memory_used_mib=used,
                    power_watts=power,
                )
            )
        return readings

    return read


def nvidia_smi_command(program: str, uuids: Sequence[str]) -> list[str]:
    """Return the command that prints one line per GPU."""
    return [
        program,
        f"--query-gpu={QUERY}",
        "--format=csv,noheader,nounits",
        f"--id={','.join(uuids)}",
    ]


def run_nvidia_smi(command: Sequence[str]) -> str:
    """Run the command and return its output."""
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=NVIDIA_SMI_SECONDS
    ).stdout


def parse_nvidia_smi(text: str) -> list[Reading]:
    """Parse `csv,noheader,nounits`; raise ValueError for any other line."""
    readings = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != len(HEADER):
            raise ValueError(f"nvidia-smi printed {line!r}")
        timestamp, index, name, *values = words
        gpu, of_memory, total, used, power = map(reported, values)
        readings.append(
            Reading(
                timestamp=timestamp,
                index=int(index),
                name=name,
                utilization_gpu_percent=None if gpu is None else int(gpu),
                utilization_memory_percent=None if of_memory is None else int(of_memory),
                memory_total_mib=None if total is None else int(total),
                memory_used_mib=None if used is None else int(used),
                power_watts=power,
            )
        )
    return readings


def reported(word: str) -> float | None:
    """Parse a number of nvidia-smi; None if the device does not report it."""
    return None if UNREPORTED.fullmatch(word) else float(word)


def csv_row(reading: Reading) -> list[str]:
    """Return the fields of a reading in the order of HEADER."""
    return [
        NOT_AVAILABLE if value is None else str(value)
        for value in dataclasses.asdict(reading).values()
    ]


class Monitor:
    """Reads the GPUs in a thread and appends to a CSV file until it is stopped."""

    def __init__(
        self, reader: Reader, path: pathlib.Path, *, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        self._reader = reader
        self._path = path
        self._interval_seconds = interval_seconds
        self._stopping = threading.Event()
        self._summaries: dict[int, Summary] = {}
        self._counts: dict[int, int] = {}
        # A daemon thread does not keep the program alive if it ends without `stop`.
        self._thread = threading.Thread(target=self._run, name="gpu-monitor", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> list[Summary]:
        """Stop the thread; return the statistics of each GPU."""
        self._stopping.set()
        self._thread.join(timeout=NVIDIA_SMI_SECONDS + 1)
        return [self._summaries[index] for index in sorted(self._summaries)]

    def _run(self) -> None:
        try:
            # An existing file is that of an earlier attempt.
            with self._path.open("a", newline="") as file:
                writer = csv.writer(file)
                if file.tell() == 0:
                    writer.writerow(HEADER)
                while True:
                    for reading in self._reader():
                        writer.writerow(csv_row(reading))
                        self._count(reading)
                    file.flush()
                    if self._stopping.wait(self._interval_seconds):
                        return
        # After any error (driver failure, full disk) training continues without the monitor.
        except Exception as error:
            sys.stderr.write(f"trainers.monitor: GPU monitoring stopped: {error}\n")

    def _count(self, reading: Reading) -> None:
        before = self._summaries.get(reading.index)
        percent = reading.utilization_gpu_percent
        count = self._counts.get(reading.index, 0)
        mean = before.mean_utilization_percent if before is not None else None
        if percent is not None:
            mean = ((mean or 0.0) * count + percent) / (count + 1)
            self._counts[reading.index] = count + 1
        peaks = [reading.memory_used_mib, before.peak_memory_mib if before is not None else None]
        self._summaries[reading.index] = Summary(
            index=reading.index,
            name=reading.name,
            mean_utilization_percent=mean,
            peak_memory_mib=max((peak for peak in peaks if peak is not None), default=None),
            memory_total_mib=reading.memory_total_mib,
        )


def summary_line(host: str, summary: Summary) -> str:
    """Return one line with the utilization and peak memory of a GPU."""
    percent = summary.mean_utilization_percent
    busy = "utilization unknown" if percent is None else f"mean utilization {percent:.0f} %"
    memory = "peak memory unknown"
    if summary.peak_memory_mib is not None:
        total = "" if summary.memory_total_mib is None else f" of {summary.memory_total_mib}"
        memory = f"peak memory {summary.peak_memory_mib}{total} MiB"
    return f"GPU {summary.index} of {host} ({summary.name}): {busy}, {memory}"


@contextlib.contextmanager
def watch(place: ranks.Ranks, folder: pathlib.Path | None, name: str, host: str) -> Iterator[None]:
    """Monitor this node's GPUs while the body runs, then print their statistics.

    One process per node writes `NAME.HOST.csv`; if each rank sees only its own GPU, each rank
    writes `NAME.HOST.LOCAL_RANK.csv`. Without a folder, a GPU, or NVML and nvidia-smi, nothing is
    monitored.
    """
    uuids = visible_uuids() if folder is not None else []
    alone = len(uuids) < place.local_world_size
    reader = find_reader(uuids) if alone or place.local_rank == 0 else None
    if reader is None or folder is None:
        yield
        return
    number = f".{place.local_rank}" if alone else ""
    monitor = Monitor(reader, folder / f"{name}.{host}{number}.csv")
    monitor.start()
    try:
        yield
    finally:
        for summary in monitor.stop():
            print(summary_line(host, summary), flush=True)
