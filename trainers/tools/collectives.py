"""Verify and time all-reduce, for message sizes from 1 byte to 128 MiB."""

import dataclasses
import time
from collections.abc import Callable

import torch
import torch.distributed

from trainers import distributed

# DDP's buckets usually have up to 25 MiB, but a whole model may be one bucket.
LARGEST_BYTES = 128 << 20
# Factor between two sizes.
FACTOR = 4
REPEATS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Result of the all-reduces of one size."""

    #: Size of the tensor on each rank.
    num_bytes: int
    #: Number of wrong elements over all ranks and repeats.
    num_wrong: int
    #: Duration of one all-reduce on the slowest rank, median of the repeats.
    seconds: float
    #: Number of ranks.
    world_size: int

    @property
    def bus_bytes_per_second(self) -> float:
        """Bus bandwidth as in nccl-tests: 2 (n - 1) / n times the size, divided by the time."""
        return 2 * (self.world_size - 1) / self.world_size * self.num_bytes / self.seconds


def sizes(largest_bytes: int) -> list[int]:
    """Return the sizes to measure, from 1 byte to `largest_bytes`."""
    powers = (FACTOR**power for power in range(largest_bytes.bit_length()))
    return [*(size for size in powers if size < largest_bytes), largest_bytes]


def measure(
    dist: distributed.DistInfo,
    device: torch.device,
    num_bytes: int,
    *,
    reduce: Callable[[torch.Tensor], object] = torch.distributed.all_reduce,
) -> Result:
    """Sum integers over all ranks and compare every element; all ranks must call it.

    The sum of integers does not depend on their order, so a single wrong bit is detected. `reduce`
    sums in place.
    """
    # int32 if the size is a multiple of 4 bytes, else bytes.
    dtype = torch.int32 if num_bytes % 4 == 0 else torch.uint8
    pattern = (torch.arange(num_bytes // dtype.itemsize, device=device) % 13).to(dtype)
    expected = pattern * sum(range(1, dist.world_size + 1))
    num_wrong = torch.zeros(1, dtype=torch.int64, device=device)
    seconds = torch.zeros(REPEATS, dtype=torch.float64, device=device)
    # The first all-reduce sets up connections: it is verified but not timed.
    for repeat in range(-1, REPEATS):
        tensor = pattern * (dist.rank + 1)
        distributed.barrier()
        _synchronize(device)
        started = time.perf_counter()
        reduce(tensor)
        _synchronize(device)
        if repeat >= 0:
            seconds[repeat] = time.perf_counter() - started
        num_wrong += (tensor != expected).sum()
    return Result(
        num_bytes=num_bytes,
        num_wrong=int(distributed.all_reduce(num_wrong).item()),
        seconds=distributed.all_reduce(seconds, "max").median().item(),
        world_size=dist.world_size,
    )


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
