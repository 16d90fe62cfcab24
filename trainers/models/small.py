"""Networks of a few layers."""

import torch
from torch import nn

from trainers.models import shapes


def cnn(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """Two convolutions and two linear layers, for digits and MNIST.

    Without batch norm, so that gradients do not depend on the world size.
    """
    num_channels, height, width = shapes.image("cnn", sample_shape, smallest=2)
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


def mlp(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """One hidden layer of 128 units."""
    return _one_hidden_layer(sample_shape, num_classes, 128)


def lesson_mlp(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """SimpleModel of Lesson 05: one hidden layer of 64 units (there 20 numbers, 10 classes)."""
    return _one_hidden_layer(sample_shape, num_classes, 64)


def _one_hidden_layer(sample_shape: torch.Size, num_classes: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(sample_shape.numel(), width),
        nn.ReLU(),
        nn.Linear(width, num_classes),
    )


def sca_cnn(sample_shape: torch.Size, num_classes: int) -> nn.Module:
    """The model of the SCA tutorial for MNIST, which is that of PyTorch's MNIST example.

    There it ends in log_softmax, and the loss is the negative log-likelihood, which equals the
    cross entropy of the logits.
    """
    num_channels, height, width = shapes.image("sca-cnn", sample_shape, smallest=6)
    return nn.Sequential(
        nn.Conv2d(num_channels, 32, kernel_size=3),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, num_classes),
    )
