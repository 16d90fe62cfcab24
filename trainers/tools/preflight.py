"""Checks before a job: devices, collectives, data, image, clock.

One node:      torchrun --standalone --nproc-per-node=4 -m trainers.tools.preflight
Several nodes: with the launch command of the training
A data set:    python -m trainers.tools.preflight --dataset cifar100
An image:      python -m trainers.tools.preflight --image pytorch.sif, on a node that will run it

Prints one line per check: `ok`, `warning` or `FAILED`. The exit code is 1 if a check failed.
"""

import argparse
import collections
import dataclasses
import itertools
import os
import pathlib
import platform
import re
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainers import arguments, bounds, data, distributed, errors
from trainers.data import memory

OK, WARNING, FAILED = "ok", "warning", "FAILED"

# NTP keeps nodes within milliseconds; logs and certificates tolerate a second.
CLOCK_SECONDS = 1.0
# The first device of CUDA_VISIBLE_DEVICES: a number, GPU-UUID or MIG-UUID.
VALID_DEVICE = re.compile(r"[0-9]|GPU-|MIG-", re.IGNORECASE)
# DataLoader workers pass batches through shared memory; containers often have only 64 MiB.
SHARED_MEMORY_BYTES = 1 << 30
# DDP's buckets usually have up to 25 MiB, but a whole model may be one bucket.
LARGEST_BYTES = 128 << 20
REPEATS = 5
# SIF's header, after 32 bytes of launch script: magic, version, architecture
# (github.com/sylabs/sif, pkg/sif/arch.go).
SIF_HEADER = re.compile(rb".{32}SIF_MAGIC\0.{3}(..)", re.DOTALL)
SIF_ARCHITECTURES = {b"02": "x86_64", b"04": "aarch64", b"06": "ppc64le", b"12": "riscv64"}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of one check."""

    #: OK, WARNING or FAILED.
    level: str
    #: What was checked.
    subject: str
    #: The result, with a fix unless it is ok.
    text: str

    def line(self) -> str:
        """Return the result as one line."""
        return f"{self.level:7}  {self.subject}: {self.text}"


def check_device(dist: distributed.DistInfo, device: torch.device, choice: str) -> Outcome:
    """Check the device of this rank; `choice` is `auto`, `cpu` or `cuda`."""
    if device.type == "cpu":
        text = f"CPU, {torch.get_num_threads()} thread(s) per rank"
        level, problem = missing_gpus(os.environ) if choice == "auto" else (OK, "")
        return Outcome(level, "device", text + problem)
    properties = torch.cuda.get_device_properties(device)
    text = (
        f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, compute capability"
        f" {properties.major}.{properties.minor}"
    )
    count = torch.cuda.device_count()
    unused = count - dist.local_world_size
    if dist.launcher is distributed.Launcher.TORCHRUN and unused > 0:
        text += f"; {unused} GPU(s) of the node are unused: set --nproc-per-node={count}"
        return Outcome(WARNING, "device", text)
    return Outcome(OK, "device", text)


def missing_gpus(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return level and text about the GPUs of the job, of which `--device auto` found none.

    CUDA uses the devices of CUDA_VISIBLE_DEVICES up to the first invalid one: `-1`, an empty value
    and `NoDevFiles`, which Slurm sets in jobs without GPUs, hide all GPUs.
    """
    count = environ.get("SLURM_GPUS_ON_NODE", "").strip()
    devices = environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    is_hidden = "CUDA_VISIBLE_DEVICES" in environ and not VALID_DEVICE.match(devices)
    if count == "0" or not (count or devices) or (is_hidden and not count):
        return OK, ""
    if is_hidden:
        hint = f"CUDA_VISIBLE_DEVICES={devices} hides them: unset it, or set --device cpu"
        return WARNING, f"; the job has GPUs ({count}), but {hint}"
    fix = "install a CUDA build of PyTorch, use --nv in a container, or set --device cpu"
    return FAILED, f", but the job has GPUs ({count or devices}): {fix}"


def check_cpus(dist: distributed.DistInfo) -> Outcome:
    """Check the number of cores that this rank may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{cores} core(s) for the node's {dist.local_world_size} rank(s)"
    # With srun each rank has its own cores.
    sharing = 1 if dist.launcher is distributed.Launcher.SRUN else dist.local_world_size
    if cores is not None and cores < sharing:
        text += ": request more (--cpus-per-task); if srun starts the ranks, also export"
        return Outcome(WARNING, "cores", f"{text} SRUN_CPUS_PER_TASK")
    return Outcome(OK, "cores", text)


def check_shared_memory(folder: pathlib.Path = pathlib.Path("/dev/shm")) -> Outcome:
    """Check whether there is enough shared memory for DataLoader workers."""
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return Outcome(WARNING, "shared memory", f"{folder}: {error}")
    text = f"{free_bytes / 2**30:.1f} GiB free in {folder}"
    if free_bytes < SHARED_MEMORY_BYTES:
        text += ": DataLoader workers may be killed; enlarge it, or use --num-workers 0"
        return Outcome(WARNING, "shared memory", text)
    return Outcome(OK, "shared memory", text)


def check_data(args: argparse.Namespace) -> Outcome:
    """Check whether a data set is complete and readable."""
    try:
        data.stage(args)
        splits = data.load(args)
    except errors.TrainerError as error:
        return Outcome(FAILED, "data", str(error))
    sizes = f"{len(splits.train)} samples for training and {len(splits.eval)} for testing"
    fingerprint = memory.fingerprint(splits.train)
    return Outcome(OK, "data", f"{args.dataset}, {sizes}, fingerprint {fingerprint}")


def check_run_dir(folder: pathlib.Path) -> Outcome:
    """Check whether files can be created in the run folder."""
    probe = folder / f".preflight.{socket.gethostname()}.{os.getpid()}"
    try:
        probe.write_text("x")
        probe.unlink()
    except OSError as error:
        return Outcome(FAILED, "run folder", f"{error}: create it, or bind it into the container")
    return Outcome(OK, "run folder", f"{folder} is writable")


def check_image(path: pathlib.Path, machine: str) -> Outcome:
    """Check whether an image is for the architecture of this node."""
    try:
        with path.open("rb") as file:
            header = SIF_HEADER.match(file.read(64))
    except OSError as error:
        return Outcome(FAILED, "image", str(error))
    if header is None:
        return Outcome(WARNING, "image", f"{path} is not a SIF file: architecture unknown")
    unknown = f"architecture {header[1].decode(errors='replace')}"
    architecture = SIF_ARCHITECTURES.get(header[1], unknown)
    if architecture != machine:
        text = f"{path} is for {architecture}, this node is {machine}: build it for {machine}"
        return Outcome(FAILED, "image", text)
    return Outcome(OK, "image", f"{path} is for {machine}, like this node")


def check_clock(dist: distributed.DistInfo) -> Outcome:
    """Compare the nodes' clocks; all ranks must call it."""
    distributed.barrier()
    times = all_gather(time.time())
    spread = max(times) - min(times)
    if spread > CLOCK_SECONDS:
        text = f"the clocks of the nodes differ by {spread:.1f} s: check NTP"
        return Outcome(WARNING, "clock", text)
    return Outcome(OK, "clock", f"{dist.num_nodes} node(s) within 1 s")


def check_software(device: torch.device) -> Outcome:
    """Compare the software of the ranks; all ranks must call it."""
    backend = "gloo"
    if device.type == "cuda":
        backend = "NCCL " + ".".join(map(str, torch.cuda.nccl.version()))
    python = f"Python {platform.python_version()}"
    software = f"{python}, torch {torch.__version__}, {backend}, {platform.machine()}"
    versions = sorted(set(all_gather(software)))
    if len(versions) > 1:
        text = f"ranks differ: {' / '.join(versions)}: use the same environment on all nodes"
        return Outcome(FAILED, "software", text)
    return Outcome(OK, "software", software)


def check_all_reduce(dist: distributed.DistInfo, device: torch.device, num_bytes: int) -> Outcome:
    """Sum integers over all ranks, compare every element, measure; all ranks must call it.

    The sum of integers does not depend on their order, so a single wrong bit is detected.
    """
    dtype = torch.int32 if num_bytes % 4 == 0 else torch.uint8
    pattern = (torch.arange(num_bytes // dtype.itemsize, device=device) % 13).to(dtype)
    expected = pattern * sum(range(1, dist.world_size + 1))
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    num_wrong = torch.zeros(1, dtype=torch.int64, device=device)
    seconds = []
    for _ in range(1 + REPEATS):
        tensor = pattern * (dist.rank + 1)
        distributed.barrier()
        synchronize()
        started = time.perf_counter()
        torch.distributed.all_reduce(tensor)
        synchronize()
        seconds.append(time.perf_counter() - started)
        num_wrong += (tensor != expected).sum()
    wrong = int(distributed.all_reduce(num_wrong).item())
    # The first all-reduce sets up connections: it is verified but not timed.
    timed = torch.tensor(seconds[1:], dtype=torch.float64, device=device)
    median = distributed.all_reduce(timed, "max").median().item()
    bandwidth = bus_bandwidth(num_bytes, median, dist.world_size)
    text = f"{size_text(num_bytes):>8}  {median * 1e6:>10.1f} us  {bandwidth / 1e9:>8.3f} GB/s"
    if wrong:
        # NVIDIA/nccl#2001: LL128 over Slingshot corrupts messages of DDP's sizes.
        text += (
            f"  {wrong} WRONG: training results would be wrong without an error."
            " On Slingshot set NCCL_PROTO=^LL128 or the vendor's variables"
        )
    return Outcome(FAILED if wrong else OK, "all-reduce", text)


def bus_bandwidth(num_bytes: int, seconds: float, world_size: int) -> float:
    """Return bytes/s as nccl-tests: 2 (n - 1) / n times the size, divided by the time."""
    return 2 * (world_size - 1) / world_size * num_bytes / seconds


def all_reduce_sizes(largest_bytes: int) -> list[int]:
    """Return the powers of 4 below `largest_bytes`, and `largest_bytes`."""
    powers = (4**power for power in range(largest_bytes.bit_length()))
    return [*(size for size in powers if size < largest_bytes), largest_bytes]


def size_text(num_bytes: int) -> str:
    """Return a size with its unit: `16 KiB`."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:g} {name}"
    return f"{num_bytes} B"


def all_gather(value: Any) -> list[Any]:
    """Return the values of all ranks, on every rank; all ranks must call it."""
    return list(distributed.broadcast(distributed.gather(value)))


def merge(gathered: Sequence[Sequence[tuple[str, Outcome]]]) -> list[Outcome]:
    """Merge equal outcomes of several ranks; name the ranks if outcomes of a check differ."""
    ranks: dict[Outcome, list[str]] = {}
    for rank, outcome in itertools.chain.from_iterable(gathered):
        ranks.setdefault(outcome, []).append(rank)
    counts = collections.Counter(outcome.subject for outcome in ranks)
    return [
        outcome
        if counts[outcome.subject] == 1
        else dataclasses.replace(outcome, text=f"{outcome.text} ({', '.join(ranks[outcome])})")
        for outcome in sorted(ranks, key=lambda outcome: list(counts).index(outcome.subject))
    ]


def run(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run all checks; return the number of failures, the same on every rank."""
    if args.image is not None:
        return report(0, [check_image(args.image, platform.machine())])
    dist = distributed.read_dist_info(environ)
    num_cuda_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = distributed.select_device(args.device, dist, num_cuda_devices=num_cuda_devices)
    with distributed.process_group(dist, device):
        own = [check_device(dist, device, args.device), check_cpus(dist)]
        if dist.local_rank == 0:
            own.append(check_shared_memory())
            if args.run_dir is not None:
                own.append(check_run_dir(args.run_dir))
            if args.dataset is not None:
                own.append(check_data(args))
        name = f"{socket.gethostname()} rank {dist.rank}"
        gathered = all_gather([(name, outcome) for outcome in own])
        outcomes = [check_software(device), check_clock(dist), *merge(gathered)]
        if dist.world_size > 1:
            sizes = all_reduce_sizes(args.largest_bytes)
            outcomes += [check_all_reduce(dist, device, size) for size in sizes]
        return report(dist.rank, outcomes)


def report(rank: int, outcomes: Sequence[Outcome]) -> int:
    """Print the outcomes on rank 0; return the number of failures."""
    failures = sum(outcome.level == FAILED for outcome in outcomes)
    summary = f"preflight: {failures} check(s) FAILED" if failures else "preflight: ready"
    if rank == 0:
        print(*(outcome.line() for outcome in outcomes), summary, sep="\n", flush=True)
    return failures


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="trainers.tools.preflight",
        description="Check devices, collectives, data, image and clock before a job.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    arguments.add_data(parser)
    parser.set_defaults(dataset=None)
    add = parser.add_argument
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="device to check")
    add("--run-dir", type=pathlib.Path, help="run folder to check")
    add("--image", type=pathlib.Path, help="check only this SIF image")
    add("--largest-bytes", type=bounds.positive, default=LARGEST_BYTES, help="largest all-reduce")
    try:
        return 1 if run(parser.parse_args(argv), os.environ) else 0
    except errors.TrainerError as error:
        print(Outcome(FAILED, "start", str(error)).line(), flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
