"""Check of the sample shape of a model."""

import torch

from trainers import errors


def check(model: str, shape: torch.Size, num_dimensions: int, smallest: int = 1) -> torch.Size:
    """Return the shape, [C, H, W] or [C, L]; raise UsageError if the model does not accept it."""
    if len(shape) != num_dimensions or min(shape[1:]) < smallest:
        kind = f"images of at least {smallest} x {smallest} pixels"
        if num_dimensions == 2:
            kind = "signals of several channels"
        raise errors.UsageError(
            f"--model {model} requires {kind}, and a sample is {' x '.join(map(str, shape))}: use"
            " another model or data set."
        )
    return shape
