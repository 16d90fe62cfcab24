"""Checks of the sample shape of a model."""

import torch

from trainers import errors


def image(model: str, shape: torch.Size, *, smallest: int = 1) -> tuple[int, int, int]:
    """Return channels, height and width; raise UsageError if the samples are not images."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise errors.UsageError(
            f"--model {model} requires images of at least {smallest} x {smallest} pixels, and a"
            f" sample is {_words(shape)}: use another model or data set."
        )
    return shape[0], shape[1], shape[2]


def signal(model: str, shape: torch.Size) -> tuple[int, int]:
    """Return channels and length; raise UsageError if the samples are not signals."""
    if len(shape) != 2:
        raise errors.UsageError(
            f"--model {model} requires signals of several channels, and a sample is"
            f" {_words(shape)}: use another model or data set."
        )
    return shape[0], shape[1]


def _words(shape: torch.Size) -> str:
    return " x ".join(str(size) for size in shape)
