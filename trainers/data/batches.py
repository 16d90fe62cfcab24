"""The order of the samples of an epoch, and its division into steps, micro-batches and ranks."""

import argparse
import dataclasses
import hashlib

import torch

from trainers import distributed, errors

DEFAULT_BATCH_SIZE = 64


def permutation(seed: int, epoch: int, size: int) -> torch.Tensor:
    """Return the order of an epoch, int64 [size], the same on every rank and for any world size."""
    digest = hashlib.sha256(f"{seed}:{epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)
    return torch.randperm(size, generator=generator)


def rank_slice(size: int, rank: int, world_size: int) -> slice:
    """Return a rank's part of a batch; sizes differ by at most one sample."""
    return slice(size * rank // world_size, size * (rank + 1) // world_size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """A rank's part of one forward pass."""

    #: Its positions in the order of the epoch.
    positions: slice
    #: False if this rank has no sample: it computes a sample of another rank with weight 0, because
    #: all ranks must take part in the collectives of DDP and FSDP.
    counted: bool
    #: Whether it is the last forward pass of the step.
    is_last: bool

    @property
    def num_samples(self) -> int:
        """Number of samples that count."""
        return self.positions.stop - self.positions.start if self.counted else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How an epoch is divided into steps, forward passes and ranks.

    Step s processes positions s * B to (s + 1) * B of the order for any world size, so the samples
    of a step do not depend on the number of ranks.
    """

    #: Samples of an epoch.
    num_samples: int
    #: Samples per step over all ranks.
    global_batch_size: int
    #: Forward passes per step.
    gradient_accumulation_steps: int
    rank: int
    world_size: int
    drop_last: bool = False

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps; without drop_last the last batch may be smaller."""
        steps, rest = divmod(self.num_samples, self.global_batch_size)
        return steps + (rest > 0 and not self.drop_last)

    @property
    def per_device_batch_size(self) -> int:
        """Samples of one forward pass on one rank."""
        return self.global_batch_size // self.gradient_accumulation_steps // self.world_size

    def batch_size(self, step: int) -> int:
        """Return the number of samples of a step over all ranks; the last step may have fewer."""
        return min(self.global_batch_size, self.num_samples - step * self.global_batch_size)

    def micro_batches(self, step: int) -> list[MicroBatch]:
        """Return this rank's forward passes of a step; all ranks have the same number."""
        first = step * self.global_batch_size
        left = self.batch_size(step)
        size = self.global_batch_size // self.gradient_accumulation_steps
        parts = []
        while left > 0:
            mine = rank_slice(min(size, left), self.rank, self.world_size)
            counted = mine.stop > mine.start
            if not counted:
                mine = slice(0, 1)
            positions = slice(first + mine.start, first + mine.stop)
            first += size
            left -= size
            parts.append(MicroBatch(positions=positions, counted=counted, is_last=left <= 0))
        return parts


def make_plan(
    args: argparse.Namespace,
    num_samples: int | None,
    dist: distributed.DistInfo,
    num_devices: int,
) -> Plan:
    """Compute the batch from the arguments; raise UsageError if they do not fit together.

    `num_samples` is None for a stream of unknown length. `num_devices` is the number of ranks, or
    of GPUs with DataParallel.
    """
    total, passes = batch_size(args, num_devices)
    if args.steps_per_epoch is not None:
        if num_samples is not None and args.steps_per_epoch * total > num_samples:
            raise errors.UsageError(
                f"--steps-per-epoch {args.steps_per_epoch} with batches of {total} samples exceeds"
                f" the training set ({num_samples} samples)."
            )
        num_samples = args.steps_per_epoch * total
    if num_samples is None:
        raise errors.UsageError(
            "The training data is a stream of unknown length: set --steps-per-epoch, or give the"
            " data set an attribute num_samples."
        )
    if total > num_samples:
        raise errors.UsageError(
            f"A batch of {total} samples is larger than the training set ({num_samples} samples):"
            " use a smaller batch or fewer ranks."
        )
    return Plan(
        num_samples=num_samples,
        global_batch_size=total,
        gradient_accumulation_steps=passes,
        rank=dist.rank,
        world_size=dist.world_size,
        drop_last=args.drop_last,
    )


def batch_size(args: argparse.Namespace, num_devices: int) -> tuple[int, int]:
    """Return the global batch size and the number of forward passes per step."""
    each = args.per_device_batch_size
    passes = args.gradient_accumulation_steps
    if args.batch_size is None and each is not None:
        passes = passes or 1
        return each * num_devices * passes, passes
    total = args.batch_size or DEFAULT_BATCH_SIZE
    what = "the number of ranks" if args.mode != "dp" else "the number of GPUs"
    if each is not None:
        _check_divides(total, each * num_devices, f"--per-device-batch-size {each} times {what}")
        if passes not in (None, total // (each * num_devices)):
            raise errors.UsageError(
                f"--batch-size {total} and --per-device-batch-size {each} on {num_devices} devices"
                f" require {total // (each * num_devices)} passes per step, not"
                f" --gradient-accumulation-steps {passes}: omit one of the three."
            )
        return total, total // (each * num_devices)
    passes = passes or 1
    if passes > 1:
        what += " times --gradient-accumulation-steps"
    _check_divides(total, num_devices * passes, what)
    return total, passes


def _check_divides(total: int, divisor: int, what: str) -> None:
    below = total - total % divisor
    if below == 0:
        raise errors.UsageError(
            f"--batch-size {total} is smaller than {what}, {divisor}:"
            f" use {divisor} or a multiple of it."
        )
    if below != total:
        raise errors.UsageError(
            f"--batch-size {total} is not a multiple of {what}, {divisor}:"
            f" use {below} or {below + divisor}."
        )
