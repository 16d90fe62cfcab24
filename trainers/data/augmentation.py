"""Augmentation of training images on the device, without a stateful random generator."""

import hashlib
from collections.abc import Callable, Mapping

import torch

# Pixels added on each side before the crop, as usual for CIFAR.
PADDING = 4


def random_keys(indices: torch.Tensor, *, seed: int, epoch: int) -> torch.Tensor:
    """Return 64 random bits for each sample, int64 like `indices`, from seed, epoch and index.

    A counter-based generator: it has no state, needs no synchronization, and any rank can compute
    the bits of any sample. The mixing function is that of splitmix64.
    """
    digest = hashlib.sha256(f"augmentation:{seed}:{epoch}".encode()).digest()
    keys = indices + int.from_bytes(digest[:8], signed=True)
    keys = (keys ^ _shift_right(keys, 30)) * _signed(0xBF58476D1CE4E5B9)
    keys = (keys ^ _shift_right(keys, 27)) * _signed(0x94D049BB133111EB)
    return keys ^ _shift_right(keys, 31)


def crop_and_flip(images: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Pad images [B, C, H, W] with zeros, crop H x W at random, and flip half of them.

    The result has the memory format channels_last.
    """
    height, width = images.shape[-2:]
    padded = torch.nn.functional.pad(images, (PADDING,) * 4).permute(0, 2, 3, 1)
    offsets = 2 * PADDING + 1
    rows = torch.arange(height, device=images.device) + (_bits(keys, 0, 16) % offsets)[:, None]
    columns = torch.arange(width, device=images.device).expand(len(images), width)
    columns = torch.where(_bits(keys, 32, 1).bool()[:, None], width - 1 - columns, columns)
    columns = columns + (_bits(keys, 16, 16) % offsets)[:, None]
    batch = torch.arange(len(images), device=images.device)
    chosen = padded[batch[:, None, None], rows[:, :, None], columns[:, None, :]]
    return chosen.permute(0, 3, 1, 2)


AUGMENTATIONS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "crop-flip": crop_and_flip
}


def _bits(keys: torch.Tensor, first: int, count: int) -> torch.Tensor:
    return (keys >> first) & ((1 << count) - 1)


def _shift_right(keys: torch.Tensor, count: int) -> torch.Tensor:
    # The right shift of a negative number fills with ones.
    return (keys >> count) & ((1 << (64 - count)) - 1)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
