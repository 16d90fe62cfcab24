"""The order of the samples of an epoch, and its division into steps, micro-batches and ranks."""

import argparse
import dataclasses
import hashlib
import math
from typing import Any, NamedTuple

import torch
from torch.utils import data as torch_data

from trainers import distributed, errors

DEFAULT_BATCH_SIZE = 64


def seed_of(*key: str | int) -> int:
    """Return a random seed of 63 bits that depends on the key alone."""
    digest = hashlib.sha256(":".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8]) >> 1


def permutation(seed: int, epoch: int, size: int) -> torch.Tensor:
    """Return the order of an epoch, int64 [size], the same on every rank and for any world size."""
    generator = torch.Generator().manual_seed(seed_of(seed, epoch))
    return torch.randperm(size, generator=generator)


def num_samples_of(dataset: Any) -> int | None:
    """Return the number of samples of an epoch; None for a stream without `num_samples`."""
    if isinstance(dataset, torch_data.IterableDataset):
        return getattr(dataset, "num_samples", None)
    return len(dataset)


class MicroBatch(NamedTuple):
    """A rank's part of one forward pass."""

    #: Its positions in the order of the epoch.
    positions: slice
    #: Number of samples that count. If it is 0, the rank computes a sample of another rank with
    #: weight 0, because all ranks must take part in the collectives of DDP and FSDP.
    num_samples: int
    #: Whether it is the last forward pass of the step.
    is_last: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How an epoch is divided into steps, forward passes and ranks.

    Step s processes positions s * B to (s + 1) * B of the order, for any number of ranks.
    """

    #: Samples of an epoch.
    num_samples: int
    #: Samples per step over all ranks.
    global_batch_size: int
    gradient_accumulation_steps: int
    rank: int
    world_size: int

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps; the last batch may be smaller."""
        return math.ceil(self.num_samples / self.global_batch_size)

    @property
    def per_device_batch_size(self) -> int:
        return self.global_batch_size // self.gradient_accumulation_steps // self.world_size

    def batch_size(self, step: int) -> int:
        """Return the number of samples of a step over all ranks; the last step may have fewer."""
        return min(self.global_batch_size, self.num_samples - step * self.global_batch_size)

    def micro_batches(self, step: int) -> list[MicroBatch]:
        """Return this rank's forward passes of a step; all ranks have the same number."""
        first = step * self.global_batch_size
        last = first + self.batch_size(step)
        size = self.global_batch_size // self.gradient_accumulation_steps
        passes = []
        for start in range(first, last, size):
            count = min(size, last - start)
            begin = start + count * self.rank // self.world_size
            end = start + count * (self.rank + 1) // self.world_size
            positions = slice(begin, end) if begin < end else slice(start, start + 1)
            passes.append(MicroBatch(positions, end - begin, is_last=start + size >= last))
        return passes


def make_plan(
    args: argparse.Namespace,
    num_samples: int | None,
    dist: distributed.DistInfo,
    num_devices: int,
) -> Plan:
    """Compute the batch from the arguments; raise UsageError if they do not fit together."""
    total, passes = batch_size(args, num_devices)
    if num_samples is None and args.steps_per_epoch is None:
        raise errors.UsageError(
            "The training data is a stream of unknown length: set --steps-per-epoch, or give the"
            " data set an attribute num_samples."
        )
    num_steps = args.steps_per_epoch or 1
    if num_samples is not None and num_samples < num_steps * total:
        raise errors.UsageError(
            f"The training set ({num_samples} samples) is smaller than {num_steps} batch(es) of"
            f" {total} samples: use a smaller batch, fewer --steps-per-epoch or fewer ranks."
        )
    if num_samples is None or args.steps_per_epoch is not None:
        num_samples = num_steps * total
    if args.drop_last:
        num_samples -= num_samples % total
    return Plan(
        num_samples=num_samples,
        global_batch_size=total,
        gradient_accumulation_steps=passes,
        rank=dist.rank,
        world_size=dist.world_size,
    )


def batch_size(args: argparse.Namespace, num_devices: int) -> tuple[int, int]:
    """Return the global batch size and the number of forward passes per step."""
    each, passes = args.per_device_batch_size, args.gradient_accumulation_steps
    if args.batch_size is None and each is not None:
        return each * num_devices * (passes or 1), passes or 1
    total, factor = args.batch_size or DEFAULT_BATCH_SIZE, each or passes or 1
    quotient, rest = divmod(total, num_devices * factor)
    if rest:
        what = f"with {each} samples each" if each else f"in {factor} pass(es)"
        valid = [str(total - rest), str(total - rest + num_devices * factor)]
        raise errors.UsageError(
            f"--batch-size {total} cannot be divided among {num_devices} devices {what}: use"
            f" {' or '.join(valid[quotient == 0 :])}."
        )
    if each is None:
        return total, factor
    if passes not in (None, quotient):
        raise errors.UsageError(
            f"--batch-size {total} and --per-device-batch-size {each} on {num_devices} devices"
            f" require --gradient-accumulation-steps {quotient}, not {passes}."
        )
    return total, quotient
