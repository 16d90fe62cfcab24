"""The order of samples in an epoch, and each rank's part of a batch."""

import hashlib

import torch


def permutation(seed: int, epoch: int, size: int) -> torch.Tensor:
    """Return the order of an epoch, int64 [size], the same on every rank and for any world size."""
    digest = hashlib.sha256(f"{seed}:{epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)
    return torch.randperm(size, generator=generator)


def rank_slice(size: int, rank: int, world_size: int) -> slice:
    """Return a rank's part of a batch; sizes differ by at most one sample."""
    return slice(size * rank // world_size, size * (rank + 1) // world_size)
