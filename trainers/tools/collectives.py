"""Verify and time all-reduce, for message sizes from 1 byte to 128 MiB."""

import dataclasses
import time
from collections.abc import Callable

import torch
from torch import distributed

from trainers import ranks

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
        moved = 2 * (self.world_size - 1) / self.world_size * self.num_bytes
        return moved / self.seconds


def sizes(largest_bytes: int) -> list[int]:
    """Return the sizes to measure, from 1 byte to `largest_bytes`."""
    result = []
    size = 1
    while size < largest_bytes:
        result.append(size)
        size *= FACTOR
    return [*result, largest_bytes]


def measure(
    place: ranks.Ranks,
    device: torch.device,
    num_bytes: int,
    *,
    reduce: Callable[[torch.Tensor], object] = distributed.all_reduce,
) -> Result:
    """Sum integers over all ranks and compare every element; all ranks must call it.

    The sum of integers does not depend on their order, so a single wrong bit is detected. `reduce`
    sums in place.
    """
    # int32 if the size is a multiple of 4 bytes, else bytes.
    dtype = torch.int32 if num_bytes % 4 == 0 else torch.uint8
    count = num_bytes // dtype.itemsize
    pattern = (torch.arange(count, device=device) % 13).to(dtype)
    expected = pattern * sum(range(1, place.world_size + 1))
    num_wrong = torch.zeros(1, dtype=torch.int64, device=device)
    times = torch.zeros(REPEATS, dtype=torch.float64, device=device)
    # The first all-reduce sets up connections: it is verified but not timed.
    for repeat in range(-1, REPEATS):
        tensor = pattern * (place.rank + 1)
        ranks.wait_for_all()
        _synchronize(device)
        began = time.perf_counter()
        reduce(tensor)
        _synchronize(device)
        if repeat >= 0:
            times[repeat] = time.perf_counter() - began
        num_wrong += (tensor != expected).sum()
    ranks.max_over_ranks(times)
    ranks.sum_over_ranks(num_wrong)
    return Result(
        num_bytes=num_bytes,
        num_wrong=int(num_wrong.item()),
        seconds=times.median().item(),
        world_size=place.world_size,
    )


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
