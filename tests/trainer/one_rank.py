"""A trainer in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from trainers import arguments, checkpoint, distributed, metrics, train

ONE_RANK = distributed.read_dist_info({})


def make(
    words: Sequence[str],
    *,
    dist: distributed.DistInfo = ONE_RANK,
    device: str = "cpu",
    **options: Any,
) -> train.Trainer:
    """Return the trainer of these arguments, with files and checkpoints if they name a folder."""
    args = arguments.parse_arguments(words)
    outputs = metrics.open_outputs(args, {}, dist)
    store = checkpoint.open_store(args, {}, dist, outputs, sharded=False)
    return train.Trainer(args, dist, torch.device(device), outputs=outputs, store=store, **options)


def run(words: Sequence[str], **options: Any) -> train.Trainer:
    """Train to the end; return the trainer."""
    trainer = make(words, **options)
    assert trainer.train() is None
    if trainer.outputs is not None:
        trainer.outputs.close()
    return trainer
