"""Checks before a job: devices, software, data and collectives.

    torchrun --standalone --nproc-per-node=4 -m trainers.tools.preflight --dataset cifar100

Prints one line per check: `ok`, `warning` or `FAILED`. The exit code is 1 if a check failed.
"""

import argparse
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from trainers import arguments, data, distributed, errors
from trainers.data import memory

OK, WARNING, FAILED = "ok", "warning", "FAILED"

REPEATS = 5


class Outcome(NamedTuple):
    """Result of one check: OK, WARNING or FAILED, what was checked, and the result with a fix."""

    level: str
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:7}  {self.subject}: {self.text}"


def check_device(dist: distributed.DistInfo, device: torch.device, choice: str) -> Outcome:
    """Check the device of this rank; `choice` is `auto`, `cpu` or `cuda`."""
    if device.type == "cpu":
        text = f"CPU, {torch.get_num_threads()} thread(s) per rank"
        gpus = os.environ.get("SLURM_GPUS_ON_NODE", "0")
        if choice == "cpu" or gpus == "0":
            return Outcome(OK, "device", text)
        text += (
            f", but the job has GPUs ({gpus}): install a CUDA build of PyTorch, use --nv in a"
            " container, unset CUDA_VISIBLE_DEVICES, or set --device cpu"
        )
        return Outcome(FAILED, "device", text)
    properties, count = torch.cuda.get_device_properties(device), torch.cuda.device_count()
    text = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if dist.launcher == "torchrun" and count > dist.local_world_size:
        text += f"; the node has {count} GPUs: set --nproc-per-node={count} to use all"
        return Outcome(WARNING, "device", text)
    return Outcome(OK, "device", text)


def check_software(device: torch.device) -> Outcome:
    versions = [f"Python {platform.python_version()}", f"torch {torch.__version__}"]
    if device.type == "cuda":
        versions.append(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    return Outcome(OK, "software", ", ".join([*versions, platform.machine()]))


def check_data(args: argparse.Namespace) -> Outcome:
    try:
        splits = data.load(args)
    except errors.TrainerError as error:
        return Outcome(FAILED, "data", str(error))
    sizes = f"{len(splits.train)} samples for training and {len(splits.eval)} for testing"
    fingerprint = memory.fingerprint(splits.train)
    return Outcome(OK, "data", f"{args.dataset}, {sizes}, fingerprint {fingerprint}")


def check_all_reduce(dist: distributed.DistInfo, device: torch.device, num_bytes: int) -> Outcome:
    """Sum integers, exact in any order, compare every element, measure; all ranks must call it."""
    pattern = torch.arange(num_bytes // 4, dtype=torch.int32, device=device) % 13
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
    # The bus bandwidth of nccl-tests.
    bandwidth = 2 * (dist.world_size - 1) / dist.world_size * num_bytes / median
    text = f"{num_bytes:>11,} B  {median * 1e6:>10.1f} us  {bandwidth / 1e9:>8.3f} GB/s"
    if wrong:
        # NVIDIA/nccl#2001: LL128 over Slingshot corrupts messages of DDP's sizes.
        text += (
            f"  {wrong} WRONG: training results would be wrong without an error. On Slingshot set"
            " NCCL_PROTO=^LL128 or the vendor's variables"
        )
    return Outcome(FAILED if wrong else OK, "all-reduce", text)


def merge(gathered: Sequence[tuple[str, Sequence[Outcome]]]) -> Iterator[Outcome]:
    """Merge equal outcomes of several ranks; name the ranks if outcomes of a check differ."""
    checks: dict[str, dict[Outcome, list[str]]] = {}
    for rank, outcomes in gathered:
        for outcome in outcomes:
            checks.setdefault(outcome.subject, {}).setdefault(outcome, []).append(rank)
    for subject, ranks in checks.items():
        for outcome, names in ranks.items():
            text = outcome.text if len(ranks) == 1 else f"{outcome.text} ({', '.join(names)})"
            yield outcome._replace(text=text)
        if subject == "software" and len(ranks) > 1:
            yield Outcome(FAILED, subject, "use the same environment on all nodes")


def run(args: argparse.Namespace) -> int:
    """Run all checks, and print them on rank 0; return the exit code, the same on every rank."""
    dist = distributed.read_dist_info(os.environ)
    num_gpus = torch.cuda.device_count()
    device = distributed.select_device(args.device, dist, num_cuda_devices=num_gpus)
    with distributed.process_group(dist, device):
        own = [check_device(dist, device, args.device), check_software(device)]
        if dist.local_rank == 0 and args.dataset is not None:
            own.append(check_data(args))
        gathered = distributed.gather((f"{socket.gethostname()} rank {dist.rank}", own))
        outcomes = list(merge(gathered))
        if dist.world_size > 1:
            halvings = range(0, args.largest_bytes.bit_length() - 2, 2)
            sizes = [args.largest_bytes >> number for number in reversed(halvings)]
            outcomes += [check_all_reduce(dist, device, size) for size in sizes]
        num_failed = sum(outcome.level == FAILED for outcome in outcomes)
        if dist.rank == 0:
            result = f"{num_failed} check(s) FAILED" if num_failed else "ready"
            print(*outcomes, f"preflight: {result}", sep="\n")
        return int(distributed.broadcast(num_failed) > 0)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "trainers.tools.preflight",
        description="Check devices, software, data and collectives before a job.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    arguments.add_data(parser)
    parser.set_defaults(dataset=None)
    add = arguments.group(parser, "checks")
    add("--device", ("auto", "cpu", "cuda"), "auto", "device to check")
    # DDP's buckets usually have up to 25 MiB, but a whole model may be one bucket.
    add("--largest-bytes", arguments.positive, 128 << 20, "largest all-reduce")
    try:
        return run(parser.parse_args(argv))
    except errors.TrainerError as error:
        print(Outcome(FAILED, "start", str(error)), flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
