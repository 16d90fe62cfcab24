"""Rank, device and process group of this process."""

import contextlib
import dataclasses
import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed
import torch.distributed.nn.functional

from trainers import errors

# torch.distributed.nn.functional must be imported before init_process_group: its functions have the
# default group as a default argument. If DistributedDataParallel imports it later, these arguments
# keep the group alive after destroy_process_group, and the process may abort while Python exits: 1
# run in 6 with torch 2.13 (pytorch pull request 179291).

# Set by torchrun for its workers (docs, torchrun, "Environment Variables").
TORCHRUN_VARIABLES = {
    "rank": "RANK",
    "local_rank": "LOCAL_RANK",
    "world_size": "WORLD_SIZE",
    "local_world_size": "LOCAL_WORLD_SIZE",
    "num_nodes": "GROUP_WORLD_SIZE",
}

# Set by srun for its tasks (man srun, OUTPUT ENVIRONMENT VARIABLES); others may be of the job.
SRUN_VARIABLES = {
    "rank": "SLURM_PROCID",
    "local_rank": "SLURM_LOCALID",
    "world_size": "SLURM_STEP_NUM_TASKS",
    "num_nodes": "SLURM_STEP_NUM_NODES",
}

# slurm.h: batch, extern and interactive steps are above it.
SLURM_MAX_NORMAL_STEP_ID = 0xFFFFFFF0

# PyTorch's default is 30 minutes with gloo and 10 with NCCL, too long after the loss of a peer.
COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=10)

CONNECTION_ERRORS = (torch.distributed.DistNetworkError, torch.distributed.DistStoreError)
# Messages of gloo and NCCL about a lost peer, which have no exception class (torch 2.6 to 2.15).
LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "remote process exited",
    # A peer that hangs, or a host that is down, for COLLECTIVE_TIMEOUT.
    "Timed out waiting",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistInfo:
    """Rank of this process and size of the run; `local` counts the processes of this node."""

    #: `torchrun`, `srun` (one task per rank) or `single`.
    launcher: str = "single"
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    num_nodes: int = 1


def read_dist_info(environ: Mapping[str, str]) -> DistInfo:
    """Read the rank from variables of torchrun or srun; raise UsageError if they are incomplete."""
    # A batch script has SLURM_PROCID too (always 0), but no SLURM_STEP_ID.
    step_id = environ.get("SLURM_STEP_ID", "")
    if {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & environ.keys():
        launcher, names = "torchrun", TORCHRUN_VARIABLES
    elif step_id.isdecimal() and int(step_id) < SLURM_MAX_NORMAL_STEP_ID:
        launcher, names = "srun", SRUN_VARIABLES
    else:
        return DistInfo()
    required = [*names.values()]
    # A single process has no process group.
    if environ.get(names["world_size"]) != "1":
        required += ["MASTER_ADDR", "MASTER_PORT"]
    missing = [name for name in required if not environ.get(name)]
    if missing:
        raise errors.UsageError(
            f"{launcher}: {', '.join(missing)} not set: start with torchrun, or with one srun"
            " task per rank (export the name of the first node and a free port as MASTER_ADDR and"
            " MASTER_PORT, and pass all variables on to a container)."
        )
    values = {field: int(environ[name]) for field, name in names.items()}
    if launcher == "srun":
        # `2(x3),1` are 2, 2, 2 and 1 tasks.
        groups = re.findall(r"([0-9]+)(?:\(x([0-9]+)\))?", environ["SLURM_STEP_TASKS_PER_NODE"])
        tasks = [int(count) for count, nodes in groups for _ in range(int(nodes or 1))]
        values["local_world_size"] = tasks[int(environ["SLURM_NODEID"])]
    return DistInfo(launcher=launcher, **values)


def select_device(choice: str, dist: DistInfo, *, num_cuda_devices: int) -> torch.device:
    """Return the device of this rank; `choice` is `auto`, `cpu` or `cuda`."""
    if choice == "cpu" or (choice == "auto" and num_cuda_devices == 0):
        return torch.device("cpu")
    if dist.launcher == "srun" and num_cuda_devices == 1:
        # With --gpus-per-task each task sees only its own GPU, as device 0.
        return torch.device("cuda", 0)
    if dist.local_rank >= num_cuda_devices:
        raise errors.UsageError(
            f"{dist.local_world_size} rank(s) on this node, but PyTorch sees {num_cuda_devices}"
            " GPU(s): start one rank per GPU, request more GPUs (in a container also --nv), install"
            " a CUDA build of PyTorch, or use --device cpu."
        )
    return torch.device("cuda", dist.local_rank)


@contextlib.contextmanager
def process_group(dist: DistInfo, device: torch.device) -> Iterator[None]:
    """Create the process group for the body, which must release its DDP modules before it ends."""
    if device.type == "cuda":
        # Before NCCL starts: otherwise each rank creates a context on device 0.
        torch.cuda.set_device(device)
    if dist.world_size == 1:
        yield
        return
    try:
        torch.distributed.init_process_group(
            # Both with a GPU: host tensors are reduced without waiting for the GPU.
            backend="cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            init_method="env://",
            rank=dist.rank,
            world_size=dist.world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
        yield
    except RuntimeError as error:
        is_unreachable = isinstance(error, CONNECTION_ERRORS)
        if is_unreachable or any(words in str(error) for words in LOST_PEER):
            raise errors.LostRankError(
                f"rank {dist.rank} of {dist.world_size} ends because another rank exited or cannot"
                " be reached: see the first error of that rank, or check MASTER_ADDR and"
                " MASTER_PORT, which must be a reachable host and a free port on it."
                f" ({str(error).splitlines()[0]})"
            ) from error
        raise
    # Not after an exception: NCCL's shutdown flushes its queue and would wait forever for a
    # collective that the failed rank has left. The process exits, and the launcher ends the others.
    torch.distributed.destroy_process_group()


def all_reduce(tensor: torch.Tensor, op: str = "sum") -> torch.Tensor:
    """Reduce the tensors of all ranks in place; `op` is `sum` or `max`."""
    if torch.distributed.is_initialized():
        operation = getattr(torch.distributed.ReduceOp, op.upper())
        torch.distributed.all_reduce(tensor, op=operation)
    return tensor


def broadcast(item: Any) -> Any:
    """Return rank 0's object on every rank; it must consist of plain values and tensors."""
    items = [item]
    if torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(items, src=0)
    return items[0]


def gather(item: Any) -> list[Any]:
    """Return the objects of all ranks on rank 0, ordered by rank; an empty list elsewhere."""
    if not torch.distributed.is_initialized():
        return [item]
    items = [None] * torch.distributed.get_world_size() if torch.distributed.get_rank() == 0 else []
    torch.distributed.gather_object(item, items or None)
    return items


def barrier() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
