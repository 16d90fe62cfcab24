"""Evaluation; each test sample is counted exactly once over all ranks."""

import contextlib
import dataclasses

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.modules import batchnorm

from trainers import datasets, ranks

# Limits the memory of a forward pass; the result does not depend on it.
EVALUATION_BATCH_SIZE = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Result on the whole test set."""

    #: Mean cross entropy per sample.
    loss: float
    #: Number of correctly classified samples.
    correct: int
    #: Number of samples over all ranks.
    count: int

    @property
    def accuracy(self) -> float:
        """Share of correctly classified samples."""
        return self.correct / self.count


@torch.no_grad()
def evaluate(
    model: nn.Module,
    data: datasets.Dataset,
    place: ranks.Ranks,
    device: torch.device,
    autocast: contextlib.AbstractContextManager[object],
) -> Evaluation:
    """Evaluate an unwrapped model on the test set; all ranks must call it.

    Each rank evaluates every world_size-th sample, without padding; only sums are reduced. The
    model is not the DDP wrapper, whose forward could start a collective. `device` is the device of
    the model; data may be in host memory.
    """
    model.eval()
    samples = data.test_samples[place.rank :: place.world_size]
    labels = data.test_labels[place.rank :: place.world_size]
    loss_sum = torch.zeros(1, dtype=torch.float64, device=device)
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for first in range(0, len(samples), EVALUATION_BATCH_SIZE):
        part = slice(first, first + EVALUATION_BATCH_SIZE)
        truth = labels[part].to(device)
        with autocast:
            logits = model(data.normalise(samples[part].to(device)))
        loss_sum += functional.cross_entropy(logits.double(), truth, reduction="sum")
        counts[0] += (logits.argmax(dim=1) == truth).sum()
        counts[1] += len(truth)
    ranks.sum_over_ranks(loss_sum)
    ranks.sum_over_ranks(counts)
    correct, count = counts.tolist()
    assert count == len(data.test_samples), "not every test sample was counted exactly once"
    return Evaluation(loss=loss_sum.item() / count, correct=correct, count=count)


@torch.no_grad()
def average_batch_norm(model: nn.Module, world_size: int) -> None:
    """Average the batch-norm statistics over all ranks; all ranks must call it.

    The statistics of a rank cover only its own samples, so rank 0's alone would miss the rest.
    """
    if not distributed.is_initialized():
        return
    for module in model.modules():
        # The base class of all batch norms has no public name.
        if not isinstance(module, batchnorm._BatchNorm):
            continue
        for statistic in (module.running_mean, module.running_var):
            if statistic is not None:
                ranks.sum_over_ranks(statistic).div_(world_size)
