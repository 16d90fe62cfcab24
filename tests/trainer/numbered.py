"""A task for the tests: small images whose labels are their positions in the data set."""

import collections
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils import data as torch_data

from trainers import tasks
from trainers.data import memory

NUM_SAMPLES = 49
NUM_CLASSES = 10


def images(count: int) -> torch.Tensor:
    """Return random images, float32 [N, 1, 8, 8]."""
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))


class Tiny(nn.Sequential):
    """Everything that has a state of its own: batch norm, dropout. The first part is a block."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(256, NUM_CLASSES),
        )


class Vectors(nn.Sequential):
    """With a batch norm that cannot normalize a single sample."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, NUM_CLASSES))


class Images(torch_data.Dataset[Any]):
    """Map-style; each sample is changed at random, with the generators that transforms use."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.rand(1, 8, 8) + random.random() + numpy.random.rand()
        return images(NUM_SAMPLES)[index] + 0.1 * noise, index


class Stream(torch_data.IterableDataset[Any]):
    """The same as a stream, in another order in each epoch."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        for position in range(self.num_samples):
            index = (position + 7 * self.epoch) % self.num_samples
            yield images(self.num_samples)[index], index


class Numbered(tasks.Task):
    """Records which samples each step uses; calls `on_pass` in each forward pass of training."""

    unit = "images"
    best_metric = "accuracy"

    def __init__(self, kind: str = "memory") -> None:
        self.kind = kind
        #: The current step, which the test program sets.
        self.step = 0
        #: Step: labels of its samples on this rank.
        self.seen: dict[int, list[int]] = collections.defaultdict(list)
        self.on_pass: Callable[[nn.Module], None] = lambda model: None

    def model(self) -> nn.Module:
        return Vectors() if self.kind == "vectors" else Tiny()

    def train_data(self) -> torch_data.Dataset[Any]:
        if self.kind == "map":
            return Images()
        if self.kind == "stream":
            return Stream(NUM_SAMPLES)
        return in_memory(NUM_SAMPLES)

    def eval_data(self) -> torch_data.Dataset[Any]:
        return Stream(21) if self.kind == "stream" else in_memory(21)

    def losses(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs, labels = batch
        if model.training:
            self.seen[self.step] += labels.tolist()
            self.on_pass(model)
        logits = model(inputs).float()
        losses = functional.cross_entropy(logits, labels % NUM_CLASSES, reduction="none")
        return losses, {"accuracy": logits.argmax(dim=1) == labels % NUM_CLASSES}


def in_memory(count: int) -> memory.TensorData:
    """Return images in memory, labelled with their positions."""
    return memory.TensorData(
        samples=images(count),
        labels=torch.arange(count),
        mean=torch.zeros(1, 1, 1),
        std=torch.ones(1, 1, 1),
    )
