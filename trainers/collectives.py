"""Does all-reduce give the right sums, and how fast: over all sizes that a training sends."""

import dataclasses
import time
from collections.abc import Callable

import torch
from torch import distributed

from trainers import ranks

# The next power of two above DDP's largest usual bucket is 32 MiB; a whole model may be one bucket.
LARGEST_BYTES = 128 << 20
# Every factor of 4 from 1 byte on, and the largest.
FACTOR = 4
REPEATS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """All-reduces of one size."""

    #: Size of the tensor on each rank.
    num_bytes: int
    #: Elements that were wrong, over all ranks and repeats.
    num_wrong: int
    #: Time of one all-reduce on the slowest rank, the median of the repeats.
    seconds: float
    #: Number of ranks.
    world_size: int

    @property
    def bus_bytes_per_second(self) -> float:
        """What each link carries: the measure of nccl-tests, 2 (n - 1) / n of the size by time."""
        moved = 2 * (self.world_size - 1) / self.world_size * self.num_bytes
        return moved / self.seconds


def sizes(largest_bytes: int) -> list[int]:
    """Return the sizes to try, from 1 byte to the largest."""
    found = []
    size = 1
    while size < largest_bytes:
        found.append(size)
        size *= FACTOR
    return [*found, largest_bytes]


def measure(
    place: ranks.Ranks,
    device: torch.device,
    num_bytes: int,
    *,
    reduce: Callable[[torch.Tensor], object] = distributed.all_reduce,
) -> Result:
    """Sum whole numbers over all ranks and compare each; all ranks must call it.

    Whole numbers have one right sum whatever the order, so that a single wrong bit shows. `reduce`
    is what sums in place.
    """
    # 4 bytes are an int32; what does not fit whole numbers of them goes as bytes.
    dtype = torch.int32 if num_bytes % 4 == 0 else torch.uint8
    count = num_bytes // dtype.itemsize
    pattern = (torch.arange(count, device=device) % 13).to(dtype)
    expected = pattern * sum(range(1, place.world_size + 1))
    num_wrong = torch.zeros(1, dtype=torch.int64, device=device)
    times = torch.zeros(REPEATS, dtype=torch.float64, device=device)
    # The first one sets up connections and is compared only.
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
