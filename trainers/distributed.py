"""Rank, device and process group of this process."""

import contextlib
import dataclasses
import datetime
import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed
import torch.distributed.nn.functional

from trainers import errors

# torch.distributed.nn.functional must be imported before init_process_group: its functions have the
# default group as a default argument. If DistributedDataParallel imports it later, these arguments
# keep the group alive after destroy_process_group. A thread of gloo may then free its last work
# while Python exits, and the process aborts after a successful run: 1 run in 6 with torch 2.13
# (pytorch pull request 179291).

# Set by torchrun for its workers (docs, torchrun, "Environment Variables").
TORCHRUN_VARIABLES = {
    "rank": "RANK",
    "local_rank": "LOCAL_RANK",
    "world_size": "WORLD_SIZE",
    "local_world_size": "LOCAL_WORLD_SIZE",
    "num_nodes": "GROUP_WORLD_SIZE",
}

# Set by srun for its tasks (man srun, OUTPUT ENVIRONMENT VARIABLES). The values of the step are
# read because SLURM_NTASKS and SLURM_NNODES may be those of the whole job.
SRUN_VARIABLES = {
    "rank": "SLURM_PROCID",
    "local_rank": "SLURM_LOCALID",
    "world_size": "SLURM_STEP_NUM_TASKS",
    "num_nodes": "SLURM_STEP_NUM_NODES",
}

# slurm.h: SLURM_MAX_NORMAL_STEP_ID is 0xfffffff0; batch, extern and interactive steps are above it.
SLURM_MAX_NORMAL_STEP_ID = 0xFFFFFFF0

# PyTorch's default is 30 minutes with gloo and 10 with NCCL, too long after the loss of a peer.
COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=10)


# Messages of gloo and NCCL about a lost peer, which have no exception class (torch 2.6 to 2.15).
LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "remote process exited",
    # A peer that hangs, or a host that is down, for COLLECTIVE_TIMEOUT.
    "Timed out waiting",
)


class Launcher(enum.Enum):
    """What started this process: torchrun, srun with one task per rank, or neither."""

    TORCHRUN = "torchrun"
    SRUN = "srun"
    SINGLE = "single"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistInfo:
    """Rank of this process and size of the run; `local` counts the processes of this node."""

    launcher: Launcher = Launcher.SINGLE
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    num_nodes: int = 1


def read_dist_info(environ: Mapping[str, str]) -> DistInfo:
    """Read the rank from the environment variables of torchrun or srun.

    Raises UsageError if they are incomplete or inconsistent.
    """
    if any(name in environ for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")):
        return _torchrun_ranks(environ)
    # A batch script has SLURM_PROCID too (always 0), but no SLURM_STEP_ID.
    step_id = environ.get("SLURM_STEP_ID", "")
    if step_id.isascii() and step_id.isdigit() and int(step_id) < SLURM_MAX_NORMAL_STEP_ID:
        return _srun_ranks(environ)
    return DistInfo()


def expand_tasks_per_node(text: str) -> list[int]:
    """Expand Slurm's `2(x3),1` to [2, 2, 2, 1]."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", part)
        if match is None:
            raise errors.UsageError(f"invalid SLURM_STEP_TASKS_PER_NODE={text!r}.")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def select_device(choice: str, dist: DistInfo, *, num_cuda_devices: int) -> torch.device:
    """Return the device of this rank; `choice` is `auto`, `cpu` or `cuda`."""
    if choice == "cpu" or (choice == "auto" and num_cuda_devices == 0):
        return torch.device("cpu")
    if num_cuda_devices == 0:
        raise errors.UsageError(
            "--device cuda, but PyTorch sees no GPU on this node: request GPUs"
            " (--gpus-per-node; in a container also --nv), install a CUDA build of PyTorch,"
            " or use --device cpu."
        )
    if dist.launcher is Launcher.SRUN and num_cuda_devices == 1:
        # With --gpus-per-task each task sees only its own GPU, as device 0.
        return torch.device("cuda", 0)
    if dist.local_rank >= num_cuda_devices:
        raise errors.UsageError(
            f"{dist.local_world_size} ranks on this node, but PyTorch sees {num_cuda_devices}"
            " GPU(s): start one rank per GPU, request more GPUs, or use --device cpu."
        )
    return torch.device("cuda", dist.local_rank)


@contextlib.contextmanager
def process_group(dist: DistInfo, device: torch.device) -> Iterator[None]:
    """Create the process group for the body; a single process needs none.

    The body must release its DDP modules before it ends (create them in a function that it calls):
    they keep the group alive.
    """
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
    except torch.distributed.DistError as error:
        raise errors.LostRankError(
            f"rank {dist.rank} of {dist.world_size} could not connect to the other ranks: see the"
            " first error of another rank, or check MASTER_ADDR and MASTER_PORT, which must be a"
            f" reachable host and a free port on it. ({str(error).splitlines()[0]})"
        ) from error
    try:
        yield
    except RuntimeError as error:
        if any(words in str(error) for words in LOST_PEER):
            raise errors.LostRankError(
                f"rank {dist.rank} ends because another rank exited or cannot be reached: see the"
                f" first error of that rank. ({str(error).splitlines()[0]})"
            ) from error
        raise
    # Not after an exception: NCCL's shutdown flushes its queue and would wait forever for a
    # collective that the failed rank has left. The process exits, and the launcher ends the others.
    torch.distributed.destroy_process_group()


def all_reduce(tensor: torch.Tensor, op: str = "sum") -> torch.Tensor:
    """Reduce the tensors of all ranks in place; `op` is `sum` or `max`."""
    if torch.distributed.is_initialized():
        operations = torch.distributed.ReduceOp
        operation = operations.MAX if op == "max" else operations.SUM
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
    is_receiver = torch.distributed.get_rank() == 0
    items = [None] * torch.distributed.get_world_size() if is_receiver else None
    torch.distributed.gather_object(item, items, dst=0)
    return items or []


def barrier() -> None:
    """Wait for all ranks."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


def _torchrun_ranks(environ: Mapping[str, str]) -> DistInfo:
    required = [*TORCHRUN_VARIABLES.values(), "MASTER_ADDR", "MASTER_PORT"]
    missing = [name for name in required if name not in environ]
    if missing:
        present = [name for name in required if name in environ]
        raise errors.UsageError(
            f"{', '.join(present)} set, but not {', '.join(missing)}: start with torchrun"
            " or with srun (one task per rank), or unset these variables."
        )
    return _dist_info(Launcher.TORCHRUN, environ, TORCHRUN_VARIABLES)


def _srun_ranks(environ: Mapping[str, str]) -> DistInfo:
    required = [*SRUN_VARIABLES.values(), "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"]
    missing = [name for name in required if name not in environ]
    if missing:
        raise errors.UsageError(
            f"SLURM_STEP_ID set, but not {', '.join(missing)}: pass on the variables of srun"
            " (a container may drop them), or start with torchrun."
        )
    tasks_per_node = expand_tasks_per_node(environ["SLURM_STEP_TASKS_PER_NODE"])
    node = _integer(environ, "SLURM_NODEID")
    if node >= len(tasks_per_node):
        raise errors.UsageError(
            f"SLURM_NODEID={node}, but SLURM_STEP_TASKS_PER_NODE lists"
            f" {len(tasks_per_node)} node(s)."
        )
    dist = _dist_info(Launcher.SRUN, environ, SRUN_VARIABLES, local_world_size=tasks_per_node[node])
    unset = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
    if dist.world_size > 1 and unset:
        raise errors.UsageError(
            f"srun started {dist.world_size} tasks, but {' and '.join(unset)} not set:"
            " export the first node's name and a free port before srun."
        )
    return dist


def _dist_info(
    launcher: Launcher, environ: Mapping[str, str], names: Mapping[str, str], **more: int
) -> DistInfo:
    """Return the values of the variables; raise UsageError if they contradict each other."""
    values = {field: _integer(environ, name) for field, name in names.items()}
    dist = DistInfo(launcher=launcher, **values, **more)
    if not (
        0 <= dist.rank < dist.world_size
        and 0 <= dist.local_rank < dist.local_world_size <= dist.world_size
        and 0 < dist.num_nodes <= dist.world_size
    ):
        raise errors.UsageError(
            f"The variables of the launcher are inconsistent: rank {dist.rank} of"
            f" {dist.world_size}, local rank {dist.local_rank} of {dist.local_world_size},"
            f" {dist.num_nodes} node(s). Unset variables of an earlier launch."
        )
    return dist


def _integer(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not (text.isascii() and text.isdigit()):
        raise errors.UsageError(f"{name}={text!r} is not a number.")
    return int(text)
