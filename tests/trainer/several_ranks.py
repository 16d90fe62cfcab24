"""A program for the tests: the trainer's own steps with 1, 2 and 3 ranks, results saved by rank 0.

Usage: several_ranks.py OUTPUT. Forks its ranks, so that PyTorch is imported once.
"""

import contextlib
import importlib
import multiprocessing
import os
import pathlib
import sys
import tempfile
import threading
from typing import Any

import torch
from torch import distributed

from trainers import datasets, evaluation, models, ranks, train

CPU = torch.device("cpu")
# A whole batch, an odd one, and one that leaves a rank without an image.
BATCH_SIZES = (12, 7, 2)


def random_dataset(num_test: int) -> datasets.Dataset:
    generator = torch.Generator().manual_seed(1)

    def images(count: int) -> torch.Tensor:
        pixels = torch.randint(0, 256, (count, 1, 8, 8), generator=generator)
        return pixels.to(torch.uint8)

    def labels(count: int) -> torch.Tensor:
        return torch.randint(0, 10, (count,), generator=generator)

    return datasets.Dataset(
        name="random",
        train_images=images(max(BATCH_SIZES)),
        train_labels=labels(max(BATCH_SIZES)),
        test_images=images(num_test),
        test_labels=labels(num_test),
        num_classes=10,
        mean=127.5,
        std=73.6,
    )


def measure(place: ranks.Ranks) -> dict[str, Any]:
    data = random_dataset(num_test=101)
    gradients = {}
    losses = {}
    for size in BATCH_SIZES:
        torch.manual_seed(0)
        model = models.cnn(data.train_images.shape[1:], data.num_classes)
        trained = train.wrap(model, place, CPU)
        mine = datasets.rank_slice(size, place.rank, place.world_size)
        loss_sum = train.train_step(
            trained,
            torch.optim.SGD(trained.parameters(), lr=0.1),
            data.normalise(data.train_images[:size][mine]),
            data.train_labels[:size][mine],
            batch_size=size,
            world_size=place.world_size,
            precision=contextlib.nullcontext(),
        )
        losses[size] = ranks.sum_over_ranks(loss_sum).item()
        gradients[size] = {name: value.grad.clone() for name, value in model.named_parameters()}

    norm = torch.nn.BatchNorm1d(2)
    norm.running_mean += place.rank
    norm.running_var *= 1 + place.rank
    evaluation.average_batch_norm(norm, place.world_size)
    return {
        "losses": losses,
        "gradients": gradients,
        "evaluation": evaluation.evaluate(model, data, place, contextlib.nullcontext()),
        "running_mean": norm.running_mean.tolist(),
        "running_var": norm.running_var.tolist(),
        "decision": ranks.decide_on_rank_0(place.rank == 0, CPU),
    }


def gloo_threads() -> list[str]:
    names = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return [name.strip() for name in names if "gloo" in name]


def run_rank(rank: int, world_size: int, store: str, output: str) -> None:
    torch.set_num_threads(1)
    place = ranks.Ranks(
        launcher=ranks.Launcher.TORCHRUN,
        rank=rank,
        local_rank=rank,
        world_size=world_size,
        local_world_size=world_size,
        num_nodes=1,
    )
    results = {"gloo_threads_during": [], "gloo_threads_after": []}
    if world_size == 1:
        results |= measure(place)
    else:
        distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size
        )
        results |= measure(place)
        results["gloo_threads_during"] = gloo_threads()
        distributed.destroy_process_group()
        results["gloo_threads_after"] = gloo_threads()
    if rank == 0:
        torch.save(results, output)


def main(output: pathlib.Path) -> int:
    assert threading.active_count() == 1, "a fork would lose the other threads"
    fork = multiprocessing.get_context("fork")
    exit_codes = []
    for world_size in (1, 2, 3):
        if world_size == 3:
            # DDP imports it at its first use, which takes seconds: once here, not in each fork.
            # With 2 ranks DDP does it, as in a real run, where the order of imports matters.
            importlib.import_module("torch._dynamo")
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            result = f"{output}.{world_size}"
            children = [
                fork.Process(target=run_rank, args=(rank, world_size, store, result))
                for rank in range(world_size)
            ]
            for child in children:
                child.start()
            for child in children:
                child.join()
            exit_codes += [child.exitcode for child in children]
    return 0 if exit_codes == [0] * 6 else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
