"""A program for the tests: the trainer's own steps with 1, 2 and 3 ranks, results saved by rank 0.

Usage: several_ranks.py OUTPUT
"""

import importlib
import pathlib
import sys
import threading
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.trainer import forked, one_rank
from trainers import distributed, metrics, models, parallel, tasks, train
from trainers.data import memory, order

# Samples of a step, and passes: whole batches, odd tails, and tails that leave a rank without one.
STEPS = ((24, 1), (13, 1), (2, 1), (1, 1), (24, 2), (23, 2), (13, 2), (24, 4), (20, 4), (1, 4))
BATCH_SIZE = 24
# Options of two ranks; each gives the same gradients, bf16 only nearly.
OPTIONS = (
    ("ddp", "--static-graph"),
    ("ddp", "--find-unused-parameters"),
    ("ddp", "--activation-checkpointing"),
    ("ddp", "--gradient-compression=bf16"),
    ("fsdp", "--activation-checkpointing"),
    ("fsdp", "--max-gradient-norm=1e9"),
)
BASE = (
    "--device=cpu", f"--batch-size={BATCH_SIZE}", "--base-lr=1e-30", "--momentum=0",
    "--weight-decay=0",
)  # fmt: skip


def random_data(count: int) -> memory.TensorData:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (count, 1, 8, 8), generator=generator).to(torch.uint8)
    labels = torch.randint(0, 10, (count,), generator=generator)
    mean, std = torch.full((1, 1, 1), 127.5), torch.full((1, 1, 1), 73.6)
    return memory.TensorData(samples=pixels, labels=labels, mean=mean, std=std)


class Blocks(nn.Module):
    """A block with batch norm, and a layer that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(
            nn.Sequential(nn.Flatten(), nn.Linear(64, 16)),
            nn.Sequential(nn.BatchNorm1d(16), nn.ReLU()),
        )
        self.head = nn.Linear(16, 10)
        self.unused = nn.Linear(16, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.parts(inputs))


class Random(tasks.Task):
    """A whole batch, and a step of `size` samples after it."""

    best_metric = "accuracy"

    def __init__(self, size: int, num_eval: int = 1, model: nn.Module | None = None) -> None:
        self.size, self.num_eval, self._model = size, num_eval, model

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self._model or models.build("cnn", torch.Size((1, 8, 8)), 10)

    def train_data(self) -> memory.TensorData:
        return random_data(BATCH_SIZE + self.size)

    def eval_data(self) -> memory.TensorData:
        return random_data(self.num_eval)

    def losses(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs, labels = batch
        logits = model(inputs)
        losses = functional.cross_entropy(logits.float(), labels, reduction="none")
        return losses, {"accuracy": logits.argmax(dim=1) == labels}


def make(dist: distributed.DistInfo, task: Random, mode: str, *words: str) -> train.Trainer:
    tasks.load = lambda args, dist: task
    return one_rank.make([*BASE, f"--mode={mode}", *words], dist=dist, mode=mode)


def one_step(trainer: train.Trainer) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the sum of the losses of the second step over all ranks, and its gradients."""
    trainer.wrapped.train()
    trainer.source.begin_epoch(1, 1)
    trainer.progress.step_in_epoch = 1
    trainer.meter.start()
    trainer.train_step()
    span = trainer.meter.span(metrics.Snapshot(), trainer.meter.snapshot())
    assert span.num_samples == trainer.task.size
    gradients = {}
    for name, weight in trainer.model.named_parameters():
        if weight.grad is not None:
            full = getattr(weight.grad, "full_tensor", lambda weight=weight: weight.grad)
            gradients[name] = full().clone()
    return span.means["loss"] * span.num_samples, gradients


def whole_batch(size: int) -> dict[str, Any]:
    """Return the same by PyTorch alone, in one pass."""
    task = Random(size)
    data, model = task.train_data(), task.model()
    index = order.permutation(0, 1, len(data))[BATCH_SIZE:]
    loss = functional.cross_entropy(model(data.normalize(data.samples[index])), data.labels[index])
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return {"loss": loss.item() * size, "gradients": gradients}


def with_options(dist: distributed.DistInfo, mode: str, *words: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Blocks()
    if "--find-unused-parameters" not in words:
        model.unused.requires_grad_(False)
    trainer = make(dist, Random(BATCH_SIZE, 3, model), mode, *words)
    loss, gradients = one_step(trainer)
    norm = model.parts[1][0]
    return {
        "loss": loss,
        "gradients": gradients,
        "num_batches": norm.num_batches_tracked.item(),
        # Before an evaluation, of this rank.
        "running_mean": norm.running_mean.clone(),
        "evaluation": trainer.evaluate(),
    }


def measure(dist: distributed.DistInfo) -> dict[str, Any]:
    mode = "ddp" if dist.world_size > 1 else "single"
    done = {}
    for size, passes in STEPS:
        words = f"--gradient-accumulation-steps={passes}"
        done[size, passes] = one_step(make(dist, Random(size), mode, words))
    clipped = {}
    for scale in (1.0, 1024.0):
        words = ("--gradient-accumulation-steps=2", "--max-gradient-norm=0.05")
        trainer = make(dist, Random(BATCH_SIZE), mode, *words)
        trainer.scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1.0)
        clipped[scale] = one_step(trainer)[1]
    norm = torch.nn.BatchNorm1d(2)
    norm.running_mean += dist.rank
    norm.running_var *= 1 + dist.rank
    parallel.average_batch_norm(norm)
    options = {}
    if dist.world_size < 3:
        for way, word in OPTIONS:
            chosen = (way, word) if dist.world_size == 2 else ("single",)
            options[way, word] = with_options(dist, *chosen)
    return {
        "losses": {step: loss for step, (loss, _) in done.items()},
        "gradients": {step: gradients for step, (_, gradients) in done.items()},
        "clipped": clipped,
        "evaluations": [
            make(dist, Random(BATCH_SIZE, count), mode).evaluate() for count in (101, 2, 1)
        ],
        "options": options,
        "running_mean": norm.running_mean.tolist(),
        "running_var": norm.running_var.tolist(),
        "broadcast": distributed.broadcast(b"whole" if dist.rank == 0 else None),
        "is_same": (
            distributed.is_same_on_all_ranks(7),
            distributed.is_same_on_all_ranks(dist.rank),
        ),
    }


def gloo_threads() -> list[str]:
    names = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return [name.strip() for name in names if "gloo" in name]


def run_rank(rank: int, world_size: int, store: str, output: pathlib.Path) -> None:
    dist = distributed.DistInfo(
        launcher=distributed.Launcher.TORCHRUN,
        rank=rank,
        local_rank=rank,
        world_size=world_size,
        local_world_size=world_size,
        num_nodes=1,
    )
    with forked.process_group(rank, world_size, store):
        results = measure(dist)
        results["gloo_threads_during"] = gloo_threads()
        if world_size == 1:
            results["whole"] = {size: whole_batch(size) for size, _ in STEPS}
    results["gloo_threads_after"] = gloo_threads()
    if rank == 0:
        torch.save(results, f"{output}.{world_size}")


def main(output: pathlib.Path) -> int:
    assert threading.active_count() == 1, "a fork would lose the other threads"
    good = True
    for world_size in (1, 2, 3):
        if world_size == 2:
            # DDP imports it at its first use, which takes seconds: once here, not in each fork.
            importlib.import_module("torch._dynamo")
        good &= forked.run(run_rank, world_size, output)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
