"""Checks before a job: devices, collectives, data, image, clock.

One node:      torchrun --standalone --nproc-per-node=4 -m trainers.preflight --dataset cifar100
Several nodes: with the launch command of the training
An image:      python -m trainers.preflight --image pytorch.sif, on a node that will run it

Prints one line per check: `ok`, `warning` or `FAILED`. The exit code is 1 if a check failed.
"""

import argparse
import dataclasses
import os
import pathlib
import platform
import re
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import distributed

from trainers import bounds, collectives, datasets, errors, ranks

OK = "ok"
WARNING = "warning"
FAILED = "FAILED"

# NTP keeps nodes within milliseconds; logs and certificates tolerate a second.
CLOCK_SECONDS = 1.0
# The first device of CUDA_VISIBLE_DEVICES: a number, GPU-UUID or MIG-UUID.
VALID_DEVICE = re.compile(r"[0-9]|GPU-|MIG-", re.IGNORECASE)
# DataLoader workers pass batches through shared memory; containers often have only 64 MiB.
SHARED_MEMORY_BYTES = 1 << 30
# SIF's header, after 32 bytes of launch script: magic, version, architecture
# (github.com/sylabs/sif, pkg/sif/arch.go).
SIF_MAGIC_PLACE = 32
SIF_MAGIC = b"SIF_MAGIC\0"
SIF_ARCHITECTURE_PLACE = SIF_MAGIC_PLACE + len(SIF_MAGIC) + 3
SIF_ARCHITECTURES: Mapping[bytes, str] = {
    b"01": "i386",
    b"02": "x86_64",
    b"03": "arm",
    b"04": "aarch64",
    b"06": "ppc64le",
    b"11": "s390x",
    b"12": "riscv64",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
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


def check_device(place: ranks.Ranks, device: torch.device, choice: str) -> Verdict:
    """Check the device of this rank; `choice` is `auto`, `cpu` or `cuda`."""
    if device.type == "cpu":
        text = f"CPU, {torch.get_num_threads()} thread(s) per rank"
        level, problem = missing_gpus(os.environ) if choice == "auto" else (OK, "")
        return Verdict(level=level, subject="device", text=text + problem)
    properties = torch.cuda.get_device_properties(device)
    count = torch.cuda.device_count()
    text = (
        f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, compute capability"
        f" {properties.major}.{properties.minor}"
    )
    if place.launcher is ranks.Launcher.TORCHRUN and count > place.local_world_size:
        idle = count - place.local_world_size
        return Verdict(
            level=WARNING,
            subject="device",
            text=f"{text}; {idle} GPU(s) of the node are unused: set --nproc-per-node={count}",
        )
    return Verdict(level=OK, subject="device", text=text)


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


def check_cpus(place: ranks.Ranks) -> Verdict:
    """Check the number of cores that this rank may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{cores} core(s) for the node's {place.local_world_size} rank(s)"
    # With srun each rank has its own cores.
    shared = 1 if place.launcher is ranks.Launcher.SRUN else place.local_world_size
    if cores is not None and cores < shared:
        return Verdict(
            level=WARNING,
            subject="cores",
            text=f"{text}: request more (--cpus-per-task); if srun starts the ranks, also export"
            " SRUN_CPUS_PER_TASK",
        )
    return Verdict(level=OK, subject="cores", text=text)


def check_shared_memory(folder: pathlib.Path = pathlib.Path("/dev/shm")) -> Verdict:
    """Check whether there is enough shared memory for DataLoader workers."""
    try:
        status = os.statvfs(folder)
    except OSError as error:
        return Verdict(level=WARNING, subject="shared memory", text=f"{folder}: {error}")
    size = status.f_frsize * status.f_bavail
    text = f"{size / 2**30:.1f} GiB free in {folder}"
    if size < SHARED_MEMORY_BYTES:
        text += ": DataLoader workers may be killed; enlarge it, or use --num-workers 0"
        return Verdict(level=WARNING, subject="shared memory", text=text)
    return Verdict(level=OK, subject="shared memory", text=text)


def check_data(name: str, wanted: datasets.Options) -> Verdict:
    """Check whether a data set is complete and readable."""
    try:
        datasets.stage(name, wanted)
        data = datasets.load(name, wanted)
    except errors.TrainerError as error:
        return Verdict(level=FAILED, subject="data", text=str(error))
    return Verdict(
        level=OK,
        subject="data",
        text=f"{name}, {len(data.train_labels)} samples for training and {len(data.test_labels)}"
        f" for testing, fingerprint {data.fingerprint()}",
    )


def check_run_dir(folder: pathlib.Path) -> Verdict:
    """Check whether files can be created in the run folder."""
    probe = folder / f".preflight.{socket.gethostname()}.{os.getpid()}"
    try:
        probe.write_text("x")
        probe.unlink()
    except OSError as error:
        return Verdict(
            level=FAILED,
            subject="run folder",
            text=f"{error}: create it, or bind it into the container",
        )
    return Verdict(level=OK, subject="run folder", text=f"{folder} is writable")


def image_architecture(head: bytes) -> str | None:
    """Return the architecture in the header of a SIF image; None if it is not a SIF file."""
    if head[SIF_MAGIC_PLACE : SIF_MAGIC_PLACE + len(SIF_MAGIC)] != SIF_MAGIC:
        return None
    code = head[SIF_ARCHITECTURE_PLACE : SIF_ARCHITECTURE_PLACE + 2]
    return SIF_ARCHITECTURES.get(code, f"architecture {code.decode(errors='replace')}")


def check_image(path: pathlib.Path, machine: str) -> Verdict:
    """Check whether an image is for the architecture of this node."""
    try:
        with path.open("rb") as file:
            architecture = image_architecture(file.read(64))
    except OSError as error:
        return Verdict(level=FAILED, subject="image", text=str(error))
    if architecture is None:
        return Verdict(
            level=WARNING, subject="image", text=f"{path} is not a SIF file: architecture unknown"
        )
    if architecture != machine:
        return Verdict(
            level=FAILED,
            subject="image",
            text=f"{path} is for {architecture}, this node is {machine}: build it for {machine}",
        )
    return Verdict(level=OK, subject="image", text=f"{path} is for {machine}, like this node")


def check_clock(place: ranks.Ranks) -> Verdict:
    """Compare the nodes' clocks; all ranks must call it."""
    ranks.wait_for_all()
    times = gather(time.time())
    spread = max(times) - min(times)
    if spread > CLOCK_SECONDS:
        return Verdict(
            level=WARNING,
            subject="clock",
            text=f"the clocks of the nodes differ by {spread:.1f} s: check NTP",
        )
    return Verdict(level=OK, subject="clock", text=f"{place.num_nodes} node(s) within 1 s")


def check_software(place: ranks.Ranks, device: torch.device) -> Verdict:
    """Compare the software of the ranks; all ranks must call it."""
    backend = "gloo"
    if device.type == "cuda":
        backend = "NCCL " + ".".join(str(part) for part in torch.cuda.nccl.version())
    mine = (
        f"Python {platform.python_version()}, torch {torch.__version__}, {backend},"
        f" {platform.machine()}"
    )
    versions = sorted(set(gather(mine)))
    if len(versions) > 1:
        return Verdict(
            level=FAILED,
            subject="software",
            text=f"ranks differ: {' / '.join(versions)}: use the same environment on all nodes",
        )
    return Verdict(level=OK, subject="software", text=mine)


def collective_verdicts(results: Iterable[collectives.Result]) -> list[Verdict]:
    """Return one result per size of all-reduce."""
    verdicts = []
    for result in results:
        text = (
            f"{size_words(result.num_bytes):>8}  {result.seconds * 1e6:>10.1f} us"
            f"  {result.bus_bytes_per_second / 1e9:>8.3f} GB/s"
        )
        if result.num_wrong:
            # NVIDIA/nccl#2001: LL128 over Slingshot corrupts messages of DDP's sizes.
            text += (
                f"  {result.num_wrong} WRONG: training results would be wrong without an error."
                " On Slingshot set NCCL_PROTO=^LL128 or the vendor's variables"
            )
        level = FAILED if result.num_wrong else OK
        verdicts.append(Verdict(level=level, subject="all-reduce", text=text))
    return verdicts


def size_words(num_bytes: int) -> str:
    """Return a size with its unit: `16 KiB`."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:g} {name}"
    return f"{num_bytes} B"


def gather(value: Any) -> list[Any]:
    """Return the values of all ranks, on every rank; all ranks must call it."""
    if not distributed.is_initialized():
        return [value]
    values = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def merge(verdicts: Sequence[tuple[str, Verdict]]) -> list[Verdict]:
    """Merge equal results of several ranks; name the ranks if results differ."""
    merged: dict[Verdict, list[str]] = {}
    for who, verdict in verdicts:
        merged.setdefault(verdict, []).append(who)
    if len(merged) <= 1:
        return list(merged)
    return [
        dataclasses.replace(verdict, text=f"{verdict.text} ({', '.join(dict.fromkeys(names))})")
        for verdict, names in merged.items()
    ]


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run all checks; return the number of failures, the same on every rank."""
    if arguments.image is not None:
        return report(0, [check_image(arguments.image, platform.machine())])
    place = ranks.read_ranks(environ)
    num_cuda_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = ranks.select_device(arguments.device, place, num_cuda_devices=num_cuda_devices)
    with ranks.process_group(place, device):
        host = socket.gethostname()
        own = [check_device(place, device, arguments.device), check_cpus(place)]
        if place.local_rank == 0:
            own.append(check_shared_memory())
            if arguments.run_dir is not None:
                own.append(check_run_dir(arguments.run_dir))
            if arguments.dataset is not None:
                own.append(check_data(arguments.dataset, datasets.read_options(arguments)))
        gathered = gather([(f"{host} rank {place.rank}", verdict) for verdict in own])
        verdicts = [check_software(place, device), check_clock(place)]
        pairs = [pair for each in gathered for pair in each]
        for subject in dict.fromkeys(verdict.subject for _, verdict in pairs):
            verdicts += merge([pair for pair in pairs if pair[1].subject == subject])
        if place.world_size > 1:
            sizes = collectives.sizes(arguments.largest_bytes)
            verdicts += collective_verdicts(
                [collectives.measure(place, device, size) for size in sizes]
            )
        return report(place.rank, verdicts)


def report(rank: int, verdicts: Sequence[Verdict]) -> int:
    """Print the results on rank 0; return the number of failures."""
    failures = sum(verdict.level == FAILED for verdict in verdicts)
    if rank == 0:
        for verdict in verdicts:
            print(verdict.line())
        print(f"preflight: {failures} check(s) FAILED" if failures else "preflight: ready")
        sys.stdout.flush()
    return failures


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="trainers.preflight",
        description="Check devices, collectives, data, image and clock before a job.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    datasets.add_arguments(parser)
    parser.set_defaults(dataset=None)
    parser.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="device to check"
    )
    parser.add_argument("--run-dir", type=pathlib.Path, help="run folder to check")
    parser.add_argument("--image", type=pathlib.Path, help="check only this SIF image")
    parser.add_argument(
        "--largest-bytes",
        type=bounds.positive,
        default=collectives.LARGEST_BYTES,
        help="largest message of the all-reduce check",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    try:
        return 1 if run(parse_arguments(argv), os.environ) else 0
    except errors.TrainerError as error:
        print(Verdict(level=FAILED, subject="start", text=str(error)).line(), flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
