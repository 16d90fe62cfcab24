"""Utilization, memory and power of the GPUs of this run, as CSV of nvidia-smi, every few seconds.

GPUs are named by UUID: nvidia-smi numbers all of the node, CUDA those in CUDA_VISIBLE_DEVICES.
"""

import contextlib
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator

import torch

from trainers import distributed

INTERVAL_SECONDS = 5.0
FIELDS = (
    "timestamp,index,name,utilization.gpu,utilization.memory,memory.total,memory.used,power.draw"
)
# nvidia-smi can hang if the driver has failed.
NVIDIA_SMI_SECONDS = 30


def visible_uuids() -> list[str]:
    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [f"GPU-{gpu.uuid}" for gpu in gpus]


def record(command: list[str], path: pathlib.Path, stopping: threading.Event) -> None:
    """Append the output of nvidia-smi to a file, again and again, until the event is set."""
    options = {"capture_output": True, "text": True, "timeout": NVIDIA_SMI_SECONDS}
    try:
        # An existing file is that of an earlier attempt.
        with path.open("a", buffering=1) as file:
            while True:
                header = ",noheader" if file.tell() else ""
                result = subprocess.run([*command, f"--format=csv,nounits{header}"], **options)
                if result.returncode:
                    raise OSError(f"nvidia-smi failed: {result.stdout + result.stderr}".strip())
                file.write(result.stdout)
                if stopping.wait(INTERVAL_SECONDS):
                    return
    # After any error (driver failure, full disk) training continues without the monitor.
    except Exception as error:
        sys.stderr.write(f"trainers.tools.monitor: GPU monitoring stopped: {error}\n")


@contextlib.contextmanager
def watch(dist: distributed.DistInfo, path: pathlib.Path | None) -> Iterator[None]:
    """Monitor this node's GPUs, if any, in a thread while the body runs.

    A process per node writes `PATH.csv`, or with one GPU for each rank, each `PATH.LOCAL_RANK.csv`.
    """
    uuids = visible_uuids() if path is not None and path.parent.is_dir() else []
    has_own_gpu = len(uuids) < dist.local_world_size
    program = shutil.which("nvidia-smi")
    if not uuids or program is None or not (has_own_gpu or dist.local_rank == 0):
        yield
        return
    file = pathlib.Path(f"{path}.{dist.local_rank}.csv" if has_own_gpu else f"{path}.csv")
    command = [program, f"--query-gpu={FIELDS}", f"--id={','.join(uuids)}"]
    stopping = threading.Event()
    # A daemon thread does not keep the program alive if the body never ends.
    options = {"name": "gpu-monitor", "daemon": True}
    thread = threading.Thread(target=record, args=(command, file, stopping), **options)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(timeout=NVIDIA_SMI_SECONDS + 1)
