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
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import torch

from trainers import distributed

INTERVAL_SECONDS = 5.0
HEADER = (
    "timestamp,index,name,utilization.gpu [%],utilization.memory [%],"
    "memory.total [MiB],memory.used [MiB],power.draw [W]"
).split(",")
QUERY = ",".join(name.split(" ")[0] for name in HEADER)
# Written for a value that the device does not report, such as the use of a MIG slice.
NOT_AVAILABLE = "[N/A]"
# What nvidia-smi prints for it: [N/A], [Not Supported], [Unknown Error], [GPU requires reset].
UNREPORTED = re.compile(r"\[.*\]|N/A")
# nvidia-smi can hang if the driver has failed.
NVIDIA_SMI_SECONDS = 30


@dataclasses.dataclass
class Usage:
    """Statistics of one GPU over the monitored time; None is what the device does not report."""

    #: Product name.
    name: str
    #: Readings of the share of time in which a kernel ran.
    percents: list[float] = dataclasses.field(default_factory=list)
    peak_memory_mib: float | None = None
    #: GPUs that share the memory of the host report none.
    memory_total_mib: float | None = None

    def add(self, row: Sequence[str]) -> None:
        """Add a reading, in the order of HEADER."""
        percent, _, total, used = (
            None if field == NOT_AVAILABLE else float(field) for field in row[3:7]
        )
        if percent is not None:
            self.percents.append(percent)
        if used is not None:
            self.peak_memory_mib = max(used, self.peak_memory_mib or 0.0)
        self.memory_total_mib = total

    def text(self) -> str:
        """Return the utilization and peak memory of the GPU."""
        percents, peak, total = self.percents, self.peak_memory_mib, self.memory_total_mib
        busy = f"mean utilization {statistics.fmean(percents):.0f} %" if percents else ""
        of_total = "" if total is None else f" of {total:.0f}"
        memory = "unknown" if peak is None else f"{peak:.0f}{of_total} MiB"
        return f"({self.name}): {busy or 'utilization unknown'}, peak memory {memory}"


def visible_uuids() -> list[str]:
    """Return the UUIDs of the GPUs that are visible to this process."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
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
        values = (NOT_AVAILABLE if UNREPORTED.fullmatch(field) else field for field in row[3:])
        rows.append([*row[:3], *values])
    return rows


@contextlib.contextmanager
def record(nvidia_smi: Callable[[], str], path: pathlib.Path, host: str) -> Iterator[None]:
    """Append readings to a CSV file in a thread while the body runs, then print statistics."""
    stopping = threading.Event()
    # By the number of the GPU on the node, as nvidia-smi counts.
    usages: dict[int, Usage] = {}

    def run() -> None:
        try:
            # An existing file is that of an earlier attempt.
            with path.open("a", newline="") as file:
                writer = csv.writer(file)
                if file.tell() == 0:
                    writer.writerow(HEADER)
                while True:
                    for row in parse_nvidia_smi(nvidia_smi()):
                        writer.writerow(row)
                        usages.setdefault(int(row[1]), Usage(row[2])).add(row)
                    file.flush()
                    if stopping.wait(INTERVAL_SECONDS):
                        return
        # After any error (driver failure, full disk) training continues without the monitor.
        except Exception as error:
            sys.stderr.write(f"trainers.tools.monitor: GPU monitoring stopped: {error}\n")

    # A daemon thread does not keep the program alive if the body never ends.
    thread = threading.Thread(target=run, name="gpu-monitor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(timeout=NVIDIA_SMI_SECONDS + 1)
        for index, usage in sorted(usages.items()):
            print(f"GPU {index} of {host} {usage.text()}", flush=True)


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
    with record(functools.partial(run_nvidia_smi, program, uuids), path, host):
        yield
