"""Tasks of users, and a program for the tests that trains them on one and on two ranks.

Usage: own_tasks.py OUTPUT
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import data as torch_data

from tests.trainer import forked, one_rank
from trainers import tasks

NUM_SAMPLES = 50
LENGTH = 6


def sentence(index: int) -> dict[str, torch.Tensor]:
    tokens = (index + torch.arange(LENGTH + 1)) % 16
    return {"inputs": tokens[:-1], "targets": tokens[1:]}


class Sentences(torch_data.Dataset[Any]):
    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        return sentence(index)


class Stream(torch_data.IterableDataset[Any]):
    def __init__(self, num_samples: int | None) -> None:
        self.length = num_samples or NUM_SAMPLES
        if num_samples is not None:
            self.num_samples = num_samples

    def __iter__(self) -> Iterator[Any]:
        return map(sentence, range(self.length))


class Tokens(tasks.Task):
    """Predict the next token; of samples that are dictionaries."""

    unit = "tokens"
    units_per_sample = LENGTH

    def __init__(self, data: str = "map", *, width: int = 8) -> None:
        self.data = data
        self.width = width

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(16, self.width), nn.Linear(self.width, 16))

    def train_data(self) -> torch_data.Dataset[Any]:
        return Sentences() if self.data == "map" else Stream(NUM_SAMPLES)

    def eval_data(self) -> torch_data.Dataset[Any]:
        # 13 samples: batches of different sizes on two ranks.
        return torch_data.Subset(Sentences(), range(13)) if self.data == "map" else Stream(None)

    def losses(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        logits = model(batch["inputs"]).transpose(1, 2)
        losses = nn.functional.cross_entropy(logits, batch["targets"], reduction="none")
        right = logits.argmax(dim=1) == batch["targets"]
        return losses.mean(dim=1), {"right_share": right.float().mean(dim=1)}


class Named(Tokens):
    def __init__(self, name: str) -> None:
        super().__init__(name)


class Unfinished(tasks.Task):
    """A mistake: two methods are missing."""

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def train_data(self) -> torch_data.Dataset[Any]:
        return Sentences()


class TokenLosses(Tokens):
    """A mistake: one loss for each token."""

    def losses(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        losses, values = super().losses(model, batch)
        return losses.repeat(LENGTH), {"right_share": values["right_share"].repeat(LENGTH)}


class OnlyLosses(Tokens):
    """A mistake: no metrics."""

    def losses(self, model: nn.Module, batch: Any) -> Any:
        return super().losses(model, batch)[0]


def with_losses(change: Callable[[torch.Tensor, Any], Any]) -> type[Tokens]:
    class Changed(Tokens):
        def losses(self, model: nn.Module, batch: Any) -> Any:
            return change(*super().losses(model, batch))

    return Changed


#: Mistakes in what `losses` returns.
FloatMetric = with_losses(lambda losses, values: (losses, {"perplexity": losses.mean().item()}))
LossMetric = with_losses(lambda losses, values: (losses, {"loss": losses}))


class Changing(Tokens):
    def losses(self, model: nn.Module, batch: Any) -> Any:
        losses, _ = super().losses(model, batch)
        self.unit += "s"
        return losses, {self.unit: losses}


class Misspelt(Tokens):
    best_metric = "right_shar"


class EmptyData(Tokens):
    def eval_data(self) -> Any:
        return [] if self.data == "map" else EmptyStream(None)


class EmptyStream(Stream):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


class NoBase:
    pass


#: Name: more arguments of a run.
RUNS = {
    f"{data}-{num_workers}": [f"data={data}", f"--num-workers={num_workers}"]
    for data in ("map", "stream")
    for num_workers in (0, 2)
}


def run_rank(rank: int, world_size: int, store: str, output: pathlib.Path) -> None:
    dist = forked.dist_info(rank, world_size)
    results = {}
    with forked.process_group(rank, world_size, store):
        for name, words in RUNS.items():
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                trainer = one_rank.run(
                    [
                        "--task=tests.trainer.own_tasks:Tokens",
                        *("--batch-size=12", "--epochs=2", "--base-lr=1"),
                        "--task-options",
                        *words,
                    ],
                    dist=dist,
                    mode="ddp" if world_size > 1 else "single",
                )
            results[name] = {
                "history": trainer.progress.history,
                "weights": trainer.model.state_dict(),
                "printed": printed.getvalue(),
            }
            del trainer
    if rank == 0:
        torch.save(results, f"{output}.{world_size}")


def main(output: pathlib.Path) -> int:
    # DDP imports it at its first use, which takes seconds.
    importlib.import_module("torch._dynamo")
    return 0 if all([forked.run(run_rank, world_size, output) for world_size in (1, 2)]) else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
