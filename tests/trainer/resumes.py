"""A program for the tests: runs that are stopped and resumed, on 1 and 2 ranks.

Usage: resumes.py OUTPUT. Each run leaves its folder with the checkpoints, and a file `seen.RANK`
with the samples of each step.
"""

import collections
import contextlib
import dataclasses
import importlib
import os
import pathlib
import signal
import sys
from collections.abc import Callable

import torch
from torch import distributed, nn

from tests.trainer import forked
from trainers import arguments, datasets, models, runs, stopping, train

# 49 samples in batches of 12: four whole steps of three passes, and one of a single sample, which
# leaves a rank without any. 13 passes an epoch, 39 in all.
BASE = [
    "--device=cpu", "--dataset=synthetic", "--synthetic-shape=1,8,8", "--synthetic-samples=49",
    "--model=tiny", "--epochs=3", "--batch-size=12", "--gradient-accumulation-steps=3",
    "--schedule=cosine", "--warmup-steps=4", "--max-gradient-norm=1.5", "--label-smoothing=0.1",
    "--window-steps=2", "--checkpoint-epochs=3",
]  # fmt: skip
HALF = ["--precision=fp16", "--optimizer=adamw", "--base-lr=0.003"]

# Name: (more arguments, the pass at which it is asked to stop). Passes 16 to 18 are those of the
# seventh step, 26 is the last of the second epoch.
STOPS: dict[str, tuple[list[str], int | None]] = {
    "whole": ([], None),
    "inside_a_group": ([], 17),
    "at_an_epoch_end": ([], 26),
    "at_the_first_step": ([], 1),
    "half": (HALF, None),
    "half_stopped": (HALF, 18),
}


class Tiny(nn.Sequential):
    """Everything that has a state of its own: batch norm, dropout."""

    def __init__(self, at_pass: Callable[[int], None]) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(256, 10),
        )
        self.num_passes = 0
        self.at_pass = at_pass

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            self.num_passes += 1
            self.at_pass(self.num_passes)
        return super().forward(samples)


def run_once(
    folder: pathlib.Path, rank: int, words: list[str], at_pass: Callable[[int], None]
) -> None:
    folder.mkdir(exist_ok=True)
    models.MODELS["tiny"] = lambda shape, num_classes: Tiny(at_pass)  # type: ignore[index]
    seen = collections.defaultdict(list)
    take = datasets.Dataset.train_batch
    moving = {}

    def watch(data: datasets.Dataset, indices: torch.Tensor, **key: int) -> object:
        seen[moving["progress"].step].append(indices.tolist())
        return take(data, indices, **key)

    make = runs.make

    def watched(launch: runs.Launch) -> object:
        run, training = make(launch)
        moving["progress"] = training.progress
        return run, training

    args = arguments.parse_arguments([*BASE, *words, "--run-dir", str(folder)])
    launch = dataclasses.replace(
        runs.prepare(args, os.environ),
        stopper=stopping.Stopper(stop_file=folder / "stop", poll_seconds=0),
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(launch.stopper.signals())
        datasets.Dataset.train_batch, runs.make = watch, watched
        train.train(launch)
        datasets.Dataset.train_batch, runs.make = take, make
    launch.files.close()
    path = folder / f"seen.{rank}"
    before = torch.load(path) if path.exists() else {}
    torch.save(before | dict(seen), path)


def stop_by_file(folder: pathlib.Path, rank: int, stop_pass: int | None) -> Callable[[int], None]:
    def at_pass(number: int) -> None:
        if rank == 0 and number == stop_pass:
            (folder / "stop").touch()

    return at_pass


def stop_by_signal(rank: int, stop_pass: int) -> Callable[[int], None]:
    def at_pass(number: int) -> None:
        if rank == 1 and number == stop_pass:
            os.kill(os.getpid(), signal.SIGTERM)

    return at_pass


def go_on(folder: pathlib.Path, rank: int, words: list[str], world_size: int) -> None:
    if world_size > 1:
        distributed.barrier()
    (folder / "stop").unlink(missing_ok=True)
    if world_size > 1:
        distributed.barrier()
    run_once(folder, rank, words, lambda number: None)


def run_rank(rank: int, world_size: int, store: str, output: pathlib.Path) -> None:
    root = output / str(world_size)
    root.mkdir(exist_ok=True)
    if world_size > 1:
        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size), "GROUP_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
        }  # fmt: skip
    with forked.process_group(rank, world_size, store):
        for name, (words, stop_pass) in STOPS.items():
            folder = root / name
            run_once(folder, rank, words, stop_by_file(folder, rank, stop_pass))
            if stop_pass is not None:
                go_on(folder, rank, words, world_size)
        if world_size == 1:
            go_on(output / "moved", 2, [], 1)
            return
        # The signal reaches one rank only, and not rank 0.
        folder = root / "signalled"
        run_once(folder, rank, [], stop_by_signal(rank, 17))
        go_on(folder, rank, [], world_size)
        # What a run on one rank goes on with.
        folder = output / "moved"
        run_once(folder, rank, [], stop_by_file(folder, rank, 17))
        distributed.barrier()


def main(output: pathlib.Path) -> int:
    # DDP imports it at its first use, which takes seconds.
    importlib.import_module("torch._dynamo")
    output.mkdir(exist_ok=True)
    return 0 if all([forked.run(run_rank, world_size, output) for world_size in (2, 1)]) else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
