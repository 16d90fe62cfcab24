"""Optimizers by name."""

import argparse
from collections.abc import Iterable

import torch
from torch import nn

NAMES = ("adadelta", "adamw", "sgd")


def make(
    arguments: argparse.Namespace, parameters: Iterable[nn.Parameter], device: torch.device
) -> torch.optim.Optimizer:
    """Return the optimizer; the training loop sets its learning rate."""
    # One kernel for all parameters; with fp16 it also avoids a synchronization with the device.
    # Adadelta has no fused implementation.
    fused = device.type == "cuda"
    if arguments.optimizer == "adadelta":
        return torch.optim.Adadelta(
            parameters, lr=arguments.base_lr, weight_decay=arguments.weight_decay
        )
    if arguments.optimizer == "adamw":
        return torch.optim.AdamW(
            parameters, lr=arguments.base_lr, weight_decay=arguments.weight_decay, fused=fused
        )
    return torch.optim.SGD(
        parameters,
        lr=arguments.base_lr,
        momentum=arguments.momentum,
        nesterov=arguments.nesterov,
        weight_decay=arguments.weight_decay,
        fused=fused,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
