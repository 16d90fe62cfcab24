"""Utilization and memory of the GPUs of this run: eight fields per GPU, every few seconds.

nvidia-smi reads them, and the file has the format of its CSV. Only the GPUs visible to this process
are read, by UUID: nvidia-smi numbers all GPUs of the node, CUDA only those in CUDA_VISIBLE_DEVICES.
"""

import contextlib
import csv
import dataclasses
import functools
import pathlib
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import torch

from trainers import distributed

INTERVAL_SECONDS = 5.0
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
QUERY = ",".join(name.split(" ")[0] for name in HEADER)
# Written for a value that the device does not report, such as the use of a MIG slice.
NOT_AVAILABLE = "[N/A]"
# What nvidia-smi prints for it: [N/A], [Not Supported], [Unknown Error], [GPU requires reset].
UNREPORTED = re.compile(r"\[.*\]|N/A")
# nvidia-smi can hang if the driver has failed.
NVIDIA_SMI_SECONDS = 30


@dataclasses.dataclass(kw_only=True)
class Usage:
    """Statistics of one GPU over the monitored time."""

    #: Number of the GPU on the node, as nvidia-smi counts.
    index: int
    #: Product name.
    name: str
    #: Readings of the share of time in which a kernel ran; empty if the device reports none.
    utilization_percents: list[float] = dataclasses.field(default_factory=list)
    #: The largest reading; None if the device reports none.
    peak_memory_mib: float | None = None
    #: Total memory; None if not reported, as by GPUs that share the memory of the host.
    memory_total_mib: float | None = None

    def add(self, row: Sequence[str]) -> None:
        """Add a reading, in the order of HEADER."""
        percent, _, total, used = map(reported, row[3:7])
        if percent is not None:
            self.utilization_percents.append(percent)
        if used is not None:
            self.peak_memory_mib = max(used, self.peak_memory_mib or 0.0)
        self.memory_total_mib = total

    def line(self, host: str) -> str:
        """Return one line with the utilization and peak memory of the GPU."""
        percents = self.utilization_percents
        busy, memory = "utilization unknown", "peak memory unknown"
        if percents:
            busy = f"mean utilization {sum(percents) / len(percents):.0f} %"
        if self.peak_memory_mib is not None:
            total = "" if self.memory_total_mib is None else f" of {self.memory_total_mib:.0f}"
            memory = f"peak memory {self.peak_memory_mib:.0f}{total} MiB"
        return f"GPU {self.index} of {host} ({self.name}): {busy}, {memory}"


def visible_uuids() -> list[str]:
    """Return the UUIDs of the GPUs that are visible to this process."""
    if not torch.cuda.is_available():
        return []
    count = torch.cuda.device_count()
    return [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(count)]


def run_nvidia_smi(program: str, uuids: Sequence[str]) -> str:
    """Return one line of CSV per GPU; raise OSError if nvidia-smi fails."""
    options = [f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", f"--id={','.join(uuids)}"]
    result = subprocess.run(
        [program, *options], capture_output=True, text=True, timeout=NVIDIA_SMI_SECONDS
    )
    if result.returncode:
        message = (result.stdout + result.stderr).strip()
        raise OSError(f"nvidia-smi failed with exit code {result.returncode}: {message}")
    return result.stdout


def parse_nvidia_smi(text: str) -> list[list[str]]:
    """Parse `csv,noheader,nounits` into rows like HEADER; raise ValueError for any other line."""
    rows = []
    for line in text.splitlines():
        row = [field.strip() for field in line.split(",")]
        if len(row) != len(HEADER):
            raise ValueError(f"nvidia-smi printed {line!r}")
        values = (NOT_AVAILABLE if reported(field) is None else field for field in row[3:])
        rows.append([*row[:3], *values])
    return rows


def reported(field: str) -> float | None:
    """Parse a number of nvidia-smi; None if the device does not report it."""
    return None if UNREPORTED.fullmatch(field) else float(field)


class Monitor:
    """Reads the GPUs in a thread and appends to a CSV file until it is stopped."""

    def __init__(
        self,
        nvidia_smi: Callable[[], str],
        path: pathlib.Path,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._nvidia_smi = nvidia_smi
        self._path = path
        self._interval_seconds = interval_seconds
        self._stopping = threading.Event()
        self._usages: dict[int, Usage] = {}
        # A daemon thread does not keep the program alive if it ends without `stop`.
        self._thread = threading.Thread(target=self._run, name="gpu-monitor", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> list[Usage]:
        """Stop the thread; return the statistics of each GPU."""
        self._stopping.set()
        self._thread.join(timeout=NVIDIA_SMI_SECONDS + 1)
        return [self._usages[index] for index in sorted(self._usages)]

    def _run(self) -> None:
        try:
            # An existing file is that of an earlier attempt.
            with self._path.open("a", newline="") as file:
                writer = csv.writer(file)
                if file.tell() == 0:
                    writer.writerow(HEADER)
                while True:
                    for row in parse_nvidia_smi(self._nvidia_smi()):
                        writer.writerow(row)
                        index = int(row[1])
                        self._usages.setdefault(index, Usage(index=index, name=row[2])).add(row)
                    file.flush()
                    if self._stopping.wait(self._interval_seconds):
                        return
        # After any error (driver failure, full disk) training continues without the monitor.
        except Exception as error:
            sys.stderr.write(f"trainers.tools.monitor: GPU monitoring stopped: {error}\n")


@contextlib.contextmanager
def watch(
    dist: distributed.DistInfo, folder: pathlib.Path | None, name: str, host: str
) -> Iterator[None]:
    """Monitor this node's GPUs while the body runs, then print their statistics.

    One process per node writes `NAME.HOST.csv`; if each rank sees only its own GPU, each rank
    writes `NAME.HOST.LOCAL_RANK.csv`. Without a folder, a GPU or nvidia-smi, nothing is monitored.
    """
    uuids = visible_uuids() if folder is not None else []
    has_own_gpu = len(uuids) < dist.local_world_size
    program = shutil.which("nvidia-smi")
    if folder is None or not uuids or program is None or not (has_own_gpu or dist.local_rank == 0):
        yield
        return
    path = folder / f"{name}.{host}{f'.{dist.local_rank}' if has_own_gpu else ''}.csv"
    monitor = Monitor(functools.partial(run_nvidia_smi, program, uuids), path)
    monitor.start()
    try:
        yield
    finally:
        for usage in monitor.stop():
            print(usage.line(host), flush=True)
