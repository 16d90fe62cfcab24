"""A program for the tests: the trainer's own steps with 1, 2 and 3 ranks, results saved by rank 0.

Usage: several_ranks.py OUTPUT
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import threading
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.trainer import forked, one_rank
from trainers import distributed, errors, metrics, parallel, state, tasks, train
from trainers.data import batches, memory

# Samples of a step, and passes: whole batches, odd tails, and tails that leave a rank without one.
STEPS = ((24, 1), (7, 1), (2, 1), (1, 1), (24, 2), (11, 2), (23, 2), (24, 4), (20, 4), (1, 4))
BATCH_SIZE = 24
NUM_CLASSES = 10
#: Options of DDP and of the model, each in a step of two passes.
OPTIONS = {
    "plain": [],
    "compressed": ["--gradient-compression=bf16"],
    "static": ["--static-graph"],
    "averaged": ["--ema-decay=0.5"],
    "recomputed": ["--activation-checkpointing"],
}


def random_data(count: int) -> memory.TensorData:
    generator = torch.Generator().manual_seed(1)
    return memory.TensorData(
        samples=torch.randn(count, 1, 8, 8, generator=generator),
        labels=torch.randint(0, NUM_CLASSES, (count,), generator=generator),
        mean=torch.zeros(1, 1, 1),
        std=torch.ones(1, 1, 1),
    )


class Branches(nn.Module):
    """Two linear layers, of which the second is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(64, NUM_CLASSES)
        self.unused = nn.Linear(64, NUM_CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.used(inputs.flatten(1))
        return result


class Scaled(nn.Linear):
    """With a parameter that has no dimensions."""

    def __init__(self) -> None:
        super().__init__(64, NUM_CLASSES)
        self.scale = nn.Parameter(torch.tensor(1.0))


def make_model(kind: str) -> nn.Module:
    if kind == "scaled":
        return Scaled()
    if kind == "branches":
        return Branches()
    if kind == "tied":
        first, second = nn.Linear(64, 64), nn.Linear(64, 64)
        second.weight = first.weight
        return nn.Sequential(nn.Flatten(), first, second, nn.Linear(64, NUM_CLASSES))
    norm = nn.BatchNorm2d(4) if kind == "norm" else nn.Identity()
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), norm, nn.Tanh()),
        nn.Flatten(),
        nn.Linear(256, NUM_CLASSES),
    )


class Random(tasks.Task):
    """A step of BATCH_SIZE samples, and one of `size`."""

    best_metric = "accuracy"

    def __init__(self, size: int = BATCH_SIZE, num_eval: int = 3, kind: str = "plain") -> None:
        self.size, self.num_eval, self.kind = size, num_eval, kind

    def model(self) -> nn.Module:
        return make_model(self.kind)

    def train_data(self) -> memory.TensorData:
        return random_data(BATCH_SIZE + self.size)

    def eval_data(self) -> memory.TensorData:
        return random_data(self.num_eval)

    def losses(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        inputs, labels = batch
        logits = model(inputs)
        losses = functional.cross_entropy(logits, labels, reduction="none")
        return losses, {"accuracy": logits.argmax(dim=1) == labels}


def make(
    dist: distributed.DistInfo, mode: str, *words: str, passes: int = 1, **options: Any
) -> train.Trainer:
    task_options = [f"{name}={value!r}" for name, value in options.items()]
    return one_rank.make(
        [
            *("--device=cpu", "--task=tests.trainer.several_ranks:Random", "--base-lr=0.1"),
            *(f"--batch-size={BATCH_SIZE}", f"--gradient-accumulation-steps={passes}", *words),
            *(("--task-options", *task_options) if options else ()),
        ],
        dist=dist,
        mode=mode,
    )


def one_step(trainer: train.Trainer) -> tuple[float, dict[str, torch.Tensor]]:
    """The mean loss of the second step over all ranks, and its gradients."""
    trainer.wrapped.train()
    trainer.source.begin_epoch(1, 1)
    trainer.progress.step_in_epoch = 1
    trainer.meter.start(metrics.Span())
    trainer.train_step()
    span = trainer.meter.read()
    assert span.num_samples == trainer.plan.batch_size(1)
    return span.means["loss"], {
        name: full(value.grad).clone()
        for name, value in trainer.model.named_parameters()
        if value.grad is not None
    }


def full(tensor: Any) -> torch.Tensor:
    result: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return result


def whole_batch(size: int) -> tuple[float, dict[str, torch.Tensor]]:
    """The same by PyTorch alone, in one pass."""
    data = random_data(BATCH_SIZE + size)
    indices = batches.permutation(0, 1, len(data))[BATCH_SIZE:]
    torch.manual_seed(0)
    model = make_model("plain")
    loss = functional.cross_entropy(model(data.samples[indices]), data.labels[indices])
    loss.backward()
    gradients = {name: value.grad for name, value in model.named_parameters()}
    return loss.item(), gradients


def clipped(dist: distributed.DistInfo, mode: str, scale: float) -> dict[str, torch.Tensor]:
    trainer = make(dist, mode, "--max-gradient-norm=0.05", passes=2)
    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1.0)
    return one_step(trainer)[1]


def with_options(dist: distributed.DistInfo, mode: str, words: list[str]) -> dict[str, Any]:
    trainer = make(dist, mode, *words, passes=2, kind="norm")
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    loss, gradients = one_step(trainer)
    norm = trainer.model.get_submodule("0.1")
    return {
        "loss": loss,
        "gradients": gradients,
        "num_batches": norm.num_batches_tracked.item(),
        "running_mean": norm.running_mean.clone(),
        "before": before,
        "after": [weight.detach().clone() for weight in trainer.model.parameters()],
        "averages": list(trainer.ema.averages.values()) if trainer.ema is not None else None,
    }


def measure(dist: distributed.DistInfo) -> dict[str, Any]:
    mode = "ddp" if dist.world_size > 1 else "single"
    norm = nn.BatchNorm1d(2)
    norm.running_mean += dist.rank
    norm.running_var *= 1 + dist.rank
    parallel.average_batch_norm(norm)
    return {
        "steps": {
            (size, passes): one_step(make(dist, mode, passes=passes, size=size))
            for size, passes in STEPS
        },
        "clipped": {scale: clipped(dist, mode, scale) for scale in (1.0, 1024.0)},
        "evaluations": [make(dist, mode, num_eval=n).evaluate() for n in (101, 2, 1)],
        "running_mean": norm.running_mean.tolist(),
        "running_var": norm.running_var.tolist(),
        "broadcast": distributed.broadcast(b"whole" if dist.rank == 0 else None),
    }


def measure_two(dist: distributed.DistInfo) -> dict[str, Any]:
    sharded = make(dist, "fsdp", "--mode=fsdp", passes=2, size=23)
    evaluation = sharded.evaluate()
    unused = make(dist, "ddp", "--find-unused-parameters", kind="branches")
    try:
        make(dist, "fsdp", "--mode=fsdp", kind="scaled")
    except errors.UsageError as error:
        scaled = str(error)
    return {
        "scaled": scaled,
        "differing": differing_data(dist),
        "fsdp": (one_step(sharded), evaluation),
        "unused": one_step(unused)[0],
        "options": {name: with_options(dist, "ddp", words) for name, words in OPTIONS.items()},
    }


def differing_data(dist: distributed.DistInfo) -> list[str]:
    """Return the errors of all ranks if rank 1's copy of the data lacks a sample."""
    trainer = make(dist, "ddp")
    try:
        state.data_fingerprint(trainer, random_data(20), random_data(20 - dist.rank))
    except errors.DataError as error:
        return distributed.gather(str(error))
    return []


def timed(dist: distributed.DistInfo, path: pathlib.Path) -> list[float]:
    """Times of a step by rank; rank 1 computes its loss after rank 0 has ended."""
    trainer = make(dist, "ddp", passes=2)
    now, losses = trainer.meter._now, trainer.task.losses

    def noted() -> Any:
        value = now()
        if dist.rank == 0:
            with path.open("a") as file:
                file.write("x")
        return value

    def waiting(model: nn.Module, batch: Any) -> Any:
        while dist.rank == 1 and (not path.exists() or path.stat().st_size < 2):
            time.sleep(0.001)
        return losses(model, batch)

    trainer.meter._now, trainer.task.losses = noted, waiting  # type: ignore[method-assign]
    trainer.source.begin_epoch(1, 0)
    trainer.train_step()
    return distributed.gather(trainer.meter.snapshot(1).compute_seconds())


def gloo_threads() -> list[str]:
    names = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return [name.strip() for name in names if "gloo" in name]


def run_rank(rank: int, world_size: int, store: str, output: pathlib.Path) -> None:
    dist = forked.dist_info(rank, world_size)
    with forked.process_group(rank, world_size, store):
        results = measure(dist)
        results["gloo_threads_during"] = gloo_threads()
        if world_size == 1:
            results["whole"] = {size: whole_batch(size) for size, _ in STEPS}
            results["unused"] = one_step(make(dist, "single", kind="branches"))[0]
            results["evaluation"] = make(dist, "single").evaluate()
    results["gloo_threads_after"] = gloo_threads()
    if world_size == 2:
        # Another group: FSDP and static graphs keep theirs.
        with forked.process_group(rank, world_size, f"{store}.two"):
            results |= measure_two(dist)
            results["timed"] = timed(dist, output.with_name("ended"))
    if rank == 0:
        torch.save(results, f"{output}.{world_size}")


def main(output: pathlib.Path) -> int:
    assert threading.active_count() == 1, "a fork would lose the other threads"
    good = True
    for world_size in (1, 2, 3):
        if world_size == 3:
            # DDP imports it at its first use, which takes seconds: once here, not in each fork.
            # With 2 ranks DDP does it, as in a real run, where the order of imports matters.
            importlib.import_module("torch._dynamo")
        good &= forked.run(run_rank, world_size, output)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
