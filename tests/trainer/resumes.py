"""A program for the tests: runs that are stopped or killed, and resumed, on 1 and 2 ranks.

Usage: resumes.py OUTPUT. Each run leaves its folder with the checkpoints. In it, each attempt
leaves `seen.ATTEMPT.RANK`, a line for each step: its number and the labels of its samples.
"""

import errno
import importlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as torch_distributed
from torch import nn

from tests.trainer import forked
from trainers import arguments, checkpoint, errors, metrics, parallel, stop, train

# 49 samples in batches of 12: four whole steps of three passes, and one of a single sample, which
# leaves a rank without any. 13 passes an epoch, 39 in all.
BASE = [
    "--device=cpu", "--task=tests.trainer.numbered:Numbered", "--epochs=3", "--batch-size=12",
    "--gradient-accumulation-steps=3", "--schedule=cosine", "--warmup-epochs=0.8",
    "--max-gradient-norm=1.5", "--window-steps=2", "--checkpoint-epochs=3",
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

SAVING = ["--checkpoint-steps=2", "--ema-decay=0.9", "--activation-checkpointing"]
ADAM = [*SAVING, "--optimizer=adamw", "--base-lr=0.003"]
# Name: arguments of runs that are killed. Those with workers are resumed without.
KILLS: dict[str, list[str]] = {
    "memory": SAVING,
    "map": [*SAVING, "--num-workers=2", "--task-options", "kind='map'"],
    "stream": [*SAVING, "--num-workers=2", "--task-options", "kind='stream'"],
    "fsdp": ["--mode=fsdp", *ADAM],
}
# Where each of them is killed, and the data in memory once more.
SEEDS = [*((name, 0) for name in KILLS), ("memory", 1), ("fsdp", 1)]


class Watched(train.Trainer):
    """Tells the task which step its samples belong to."""

    #: File for the samples of each step.
    path: pathlib.Path

    def train_step(self) -> None:
        self.task.step = self.progress.step
        super().train_step()
        with self.path.open("a") as file:
            file.write(json.dumps([self.task.step, self.task.seen[self.task.step]]) + "\n")


def run_once(
    folder: pathlib.Path,
    rank: int,
    world_size: int,
    words: list[str],
    on_pass: Callable[[int, nn.Module], None] = lambda number, model: None,
) -> None:
    """Train on this rank; `on_pass` is called in each forward pass with its number, from 1."""
    folder.mkdir(exist_ok=True)
    args = arguments.parse_arguments([*BASE, *words, "--run-dir", str(folder)])
    dist = forked.dist_info(rank, world_size)
    mode = parallel.resolve_mode(args, dist, 0)
    outputs = metrics.open_outputs(args, {}, dist)
    store = checkpoint.open_store(args, {}, dist, outputs, sharded=mode == "fsdp")
    stopper = stop.Stopper(stop_file=folder / "stop", poll_seconds=0)
    trainer = Watched(
        args,
        dist,
        torch.device("cpu"),
        mode=mode,
        stopper=stopper,
        outputs=outputs,
        store=store,
    )
    attempt = len(list(folder.glob("seen.*.0")))
    trainer.path = folder / f"seen.{attempt}.{rank}"
    num_passes = 0

    def count(model: nn.Module) -> None:
        nonlocal num_passes
        num_passes += 1
        on_pass(num_passes, model)

    trainer.task.on_pass = count
    try:
        with stopper.signals():
            trainer.train()
    except errors.TrainerError as error:
        (folder / f"error.{rank}").write_text(f"{error.exit_code} {error}")
    if outputs is not None:
        outputs.close()


def stop_by_file(
    folder: pathlib.Path, rank: int, stop_pass: int | None
) -> Callable[[int, nn.Module], None]:
    def on_pass(number: int, model: nn.Module) -> None:
        if rank == 0 and number == stop_pass:
            (folder / "stop").touch()

    return on_pass


def stop_by_signal(rank: int, stop_pass: int) -> Callable[[int, nn.Module], None]:
    def on_pass(number: int, model: nn.Module) -> None:
        if rank == 1 and number == stop_pass:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_pass


def barrier(world_size: int) -> None:
    if world_size > 1:
        torch_distributed.barrier()


def go_on(folder: pathlib.Path, rank: int, words: list[str], world_size: int) -> None:
    barrier(world_size)
    (folder / "stop").unlink(missing_ok=True)
    barrier(world_size)
    run_once(folder, rank, world_size, words)


def run_stopped(rank: int, world_size: int, store: str, output: pathlib.Path) -> None:
    """Run what is not killed: each run as a whole, and stopped and resumed."""
    root = output / str(world_size)
    with forked.process_group(rank, world_size, store):
        for name, (words, stop_pass) in STOPS.items():
            folder = root / name
            run_once(folder, rank, world_size, words, stop_by_file(folder, rank, stop_pass))
            if stop_pass is not None:
                go_on(folder, rank, words, world_size)
        diverge(root, rank, world_size)
        run_once(root / "one_sample", rank, world_size, ["--task-options", "kind='vectors'"])
        run_once(
            root / "drop_last",
            rank,
            world_size,
            ["--drop-last", "--epochs=1", "--task-options", "kind='vectors'"],
        )
        if world_size == 2:
            # The signal reaches one rank only, and not rank 0.
            folder = root / "signalled"
            run_once(folder, rank, world_size, [], stop_by_signal(rank, 17))
            go_on(folder, rank, [], world_size)
            run_once(root / "ddp", rank, world_size, ADAM)
            words = ["--mode=fsdp", "--checkpoint-steps=4"]
            run_once(root / "nan_fsdp", rank, world_size, words, spoil_statistic(rank, world_size))
            folder, forced = root / "averaged", ["--mode=fsdp", "--resume=force", "--ema-decay=1"]
            run_once(folder, rank, world_size, ["--mode=fsdp", "--epochs=1"])
            run_once(folder, rank, world_size, [*forced, "--epochs=2"])
            run_once(folder, rank, world_size, [*forced, "--epochs=3", "--optimizer=adamw"])
            # The last, because it leaves a disk that stays full.
            run_once(root / "full_disk", rank, world_size, words, fill_disk(rank))


def diverge(root: pathlib.Path, rank: int, world_size: int) -> None:
    """Run what becomes NaN: the loss, and a weight or a statistic before a checkpoint."""
    large = ["--base-lr=1e30", "--warmup-epochs=0", "--checkpoint-steps=1"]
    run_once(root / "nan_loss", rank, world_size, [*large, "--max-gradient-norm=1e30"])
    spoil = spoil_statistic(rank, world_size)
    run_once(root / "nan_weight", rank, world_size, ["--checkpoint-steps=4"], spoil)

    def spoil_average(number: int, model: nn.Module) -> None:
        # The last pass of the first epoch. Training does not use it, the evaluation does.
        if number == 13:
            norm_of(model).running_mean.fill_(torch.inf)

    run_once(root / "nan_evaluation", rank, world_size, [], spoil_average)


def norm_of(model: nn.Module) -> nn.Module:
    return next(module for module in model.modules() if isinstance(module, nn.BatchNorm2d))


def spoil_statistic(rank: int, world_size: int) -> Callable[[int, nn.Module], None]:
    """Make a statistic NaN on one rank, before a checkpoint; the losses are still numbers."""

    def on_pass(number: int, model: nn.Module) -> None:
        # The last pass of step 4.
        if number == 12 and rank == world_size - 1:
            norm_of(model).running_var.fill_(torch.nan)

    return on_pass


def fill_disk(rank: int) -> Callable[[int, nn.Module], None]:
    """Fill the disk of one rank in the second epoch."""

    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def on_pass(number: int, model: nn.Module) -> None:
        if number == 14 and rank == 1:
            os.fsync = fail

    return on_pass


def die_at(number: int) -> Callable[[int, nn.Module], None]:
    """Kill this process at its n-th forward pass or change of the disk, in any thread."""
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*given: Any, **options: Any) -> Any:
            count()
            return call(*given, **options)

        return wrapper

    for name in ("fsync", "replace", "link"):
        setattr(os, name, counted(getattr(os, name)))
    return lambda number, model: count()


def run_whole(
    rank: int, world_size: int, store: str, folder: pathlib.Path, words: list[str]
) -> None:
    with forked.process_group(rank, world_size, store):
        run_once(folder, rank, world_size, words)


def run_killed(
    rank: int, world_size: int, store: str, folder: pathlib.Path, words: list[str], seed: int
) -> None:
    generator = random.Random(seed)
    victim, number = generator.randrange(world_size), generator.randrange(24, 39)
    with forked.process_group(rank, world_size, store):
        on_pass = die_at(number) if rank == victim else lambda number, model: None
        run_once(folder, rank, world_size, words, on_pass)


def resume_killed(rank: int, world_size: int, store: str, output: pathlib.Path) -> None:
    """Resume what was killed, on the same number of ranks and on another."""
    with forked.process_group(rank, world_size, store):
        for name, seed in SEEDS:
            words = [*KILLS[name], "--num-workers=0"]
            run_once(output / str(world_size) / f"{name}.{seed}", rank, world_size, words)
            run_once(output / f"to_{world_size}" / f"{name}.{seed}", rank, world_size, words)


def main(output: pathlib.Path) -> int:
    # DDP and FSDP import these at their first use, which takes seconds.
    for name in ("torch._dynamo", "torch.distributed.checkpoint.state_dict"):
        importlib.import_module(name)
    for name in ("1", "2", "to_1", "to_2"):
        (output / name).mkdir(parents=True)
    results = []
    for world_size in (1, 2):
        results.append(forked.run(run_stopped, world_size, output))
        # Processes of their own: workers are slow to end when Python collects their loader.
        for name, words in KILLS.items():
            folder = output / str(world_size) / name
            results.append(forked.run(run_whole, world_size, folder, words))
        for name, seed in SEEDS:
            folder = output / str(world_size) / f"{name}.{seed}"
            results.append(not forked.run(run_killed, world_size, folder, KILLS[name], seed))
            shutil.copytree(folder, output / f"to_{3 - world_size}" / folder.name)
    results += [forked.run(resume_killed, world_size, output) for world_size in (1, 2)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
