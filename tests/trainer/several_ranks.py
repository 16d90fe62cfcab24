"""A program for the tests: the trainer's own steps with 1, 2 and 3 ranks, results saved by rank 0.

Usage: several_ranks.py OUTPUT
"""

import contextlib
import dataclasses
import importlib
import pathlib
import sys
import threading
from typing import Any

import torch
from torch import nn

from tests.trainer import forked
from trainers import batches, data_paths, datasets, evaluation, models, ranks, steps

CPU = torch.device("cpu")
# Samples of a step, and passes: whole batches, odd tails, and tails that leave a rank without one.
STEPS = ((12, 1), (7, 1), (2, 1), (1, 1), (12, 2), (11, 2), (7, 2), (12, 4), (10, 4), (1, 4))
BATCH_SIZE = 12


def random_dataset(num_test: int) -> datasets.Dataset:
    generator = torch.Generator().manual_seed(1)

    def images(count: int) -> torch.Tensor:
        pixels = torch.randint(0, 256, (count, 1, 8, 8), generator=generator)
        return pixels.to(torch.uint8)

    def labels(count: int) -> torch.Tensor:
        return torch.randint(0, 10, (count,), generator=generator)

    return datasets.Dataset(
        name="random",
        train_samples=images(BATCH_SIZE),
        train_labels=labels(BATCH_SIZE),
        test_samples=images(num_test),
        test_labels=labels(num_test),
        num_classes=10,
        mean=127.5,
        std=73.6,
    )


def one_step(
    place: ranks.Ranks, mode: str, size: int, passes: int, **rules: Any
) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of a step over all ranks, and its gradients."""
    data = random_dataset(num_test=1)
    data = dataclasses.replace(
        data, train_samples=data.train_samples[:size], train_labels=data.train_labels[:size]
    )
    plan = batches.Plan(
        num_samples=size,
        global_batch_size=BATCH_SIZE,
        gradient_accumulation_steps=passes,
        rank=place.rank,
        world_size=place.world_size,
    )
    torch.manual_seed(0)
    model = models.cnn(data.train_samples.shape[1:], data.num_classes)
    trained = steps.wrap(model, mode, CPU)
    source = data_paths.DevicePath(data, plan, 0, torch.contiguous_format)
    source.begin_epoch(1, 0)
    sums = steps.train_step(
        trained,
        torch.optim.SGD(trained.parameters(), lr=0.0),
        source.micro_batches(0),
        batch_size=plan.batch_size(0),
        rules=steps.Rules(
            world_size=place.world_size,
            autocast=contextlib.nullcontext(),
            **{"scaler": torch.amp.GradScaler("cpu", enabled=False)} | rules,
        ),
    )
    count = ranks.sum_over_ranks(torch.tensor(sums.num_samples))
    assert count == size
    gradients = {name: value.grad.clone() for name, value in model.named_parameters()}
    return ranks.sum_over_ranks(sums.loss).item(), gradients


def whole_batch(size: int) -> dict[str, Any]:
    """The same gradients by PyTorch alone, in one pass."""
    data = random_dataset(num_test=1)
    torch.manual_seed(0)
    model = models.cnn(data.train_samples.shape[1:], data.num_classes)
    logits = model(data.normalise(data.train_samples[:size]))
    loss = nn.functional.cross_entropy(logits, data.train_labels[:size])
    loss.backward()
    gradients = {name: value.grad for name, value in model.named_parameters()}
    return {"loss": loss.item() * size, "gradients": gradients}


def measure(place: ranks.Ranks) -> dict[str, Any]:
    data = random_dataset(num_test=1)
    torch.manual_seed(0)
    model = models.cnn(data.train_samples.shape[1:], data.num_classes)
    mode = "ddp" if place.world_size > 1 else "single"
    done = {step: one_step(place, mode, *step) for step in STEPS}
    clipped = {
        scale: one_step(
            place,
            mode,
            12,
            2,
            max_gradient_norm=0.05,
            scaler=torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale != 1.0),
        )[1]
        for scale in (1.0, 1024.0)
    }
    norm = torch.nn.BatchNorm1d(2)
    norm.running_mean += place.rank
    norm.running_var *= 1 + place.rank
    evaluation.average_batch_norm(norm, place.world_size)
    return {
        "losses": {step: loss for step, (loss, _) in done.items()},
        "gradients": {step: gradients for step, (_, gradients) in done.items()},
        "clipped": clipped,
        "evaluations": [
            evaluation.evaluate(
                model, random_dataset(num_test), place, CPU, contextlib.nullcontext()
            )
            for num_test in (101, 2, 1)
        ],
        "running_mean": norm.running_mean.tolist(),
        "running_var": norm.running_var.tolist(),
        "spread": ranks.spread_from_rank_0(b"whole" if place.rank == 0 else None),
        "alike": (ranks.alike(7), ranks.alike(place.rank)),
        "decision": ranks.decide_on_rank_0(place.rank == 0),
    }


def gloo_threads() -> list[str]:
    names = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return [name.strip() for name in names if "gloo" in name]


def run_rank(rank: int, world_size: int, store: str, output: pathlib.Path) -> None:
    place = ranks.Ranks(
        launcher=ranks.Launcher.TORCHRUN,
        rank=rank,
        local_rank=rank,
        world_size=world_size,
        local_world_size=world_size,
        num_nodes=1,
    )
    with forked.process_group(rank, world_size, store):
        results = measure(place)
        results["gloo_threads_during"] = gloo_threads()
        if world_size == 1:
            results["whole"] = {size: whole_batch(size) for size, _ in STEPS}
            results["dp"] = {step: one_step(place, "dp", *step) for step in STEPS}
    results["gloo_threads_after"] = gloo_threads()
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
