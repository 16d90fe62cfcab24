"""Small classifiers; each is built from the shape of the data."""

from collections.abc import Callable, Mapping

import torch
from torch import nn


def cnn(image_shape: torch.Size, num_classes: int) -> nn.Module:
    """Two convolutions and two linear layers; `image_shape` is (C, H, W), H and W even.

    No batch norm, so that any world size computes the same gradients.
    """
    num_channels, height, width = image_shape
    return nn.Sequential(
        nn.Conv2d(num_channels, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 2) * (width // 2), 64),
        nn.ReLU(),
        nn.Linear(64, num_classes),
    )


def mlp(image_shape: torch.Size, num_classes: int) -> nn.Module:
    """One hidden layer of 128 units."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(image_shape.numel(), 128),
        nn.ReLU(),
        nn.Linear(128, num_classes),
    )


MODELS: Mapping[str, Callable[[torch.Size, int], nn.Module]] = {"cnn": cnn, "mlp": mlp}
