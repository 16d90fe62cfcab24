"""The trainer, relative to a loop written like source S2 and to a bare loop; its speed on GPUs.

The source's loop and the trainer run as processes with the same threads and number of workers, in
alternating pairs. A bare loop has the trainer's model, data, optimizer and batch in this process.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from tests.benchmarks import ratios, trainings
from trainers import arguments, distributed, optim, parallel, train
from trainers.data import loading

#: The source's loop takes at least this many times as long as the trainer's.
SOURCE_BUDGET = 1.2
#: The trainer's loop takes at most this many times as long as a bare loop.
BARE_BUDGET = 1.03
#: Arguments of both sides: S2's images, and the digits, with small steps.
OLIVIA = ("--dataset=synthetic", "--synthetic-classes=100", "--model=olivia-wrn")
DIGITS = ("--dataset=digits", "--model=cnn", "--batch-size=64")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--gpu", action="store_true", help="measure the GPUs of this machine")
    parser.add_argument("--samples", type=int, help="images; default: 256, with --gpu 50000")
    parser.add_argument("--batch-size", type=int, help="per GPU; default: 32, with --gpu 256")
    parser.add_argument("--epochs", type=int, default=3, help="of a run; the first is a warm-up")
    parser.add_argument("--repeats", type=int, default=5, help="number of pairs of runs")
    parser.add_argument("--threads", type=int, default=cores, help="threads of both sides")
    parser.add_argument("--num-workers", type=int, default=cores, help="workers of both sides")


def run(args: argparse.Namespace) -> int:
    """Print the tables; return 1 if a run failed or a budget is exceeded."""
    args.batch_size = args.batch_size or (256 if args.gpu else 32)
    args.samples = args.samples or (50_000 if args.gpu else 256)
    if args.gpu and not torch.cuda.is_available():
        print("script/bench trainer --gpu: PyTorch sees no GPU.", file=sys.stderr)
        return 2
    print(
        f"{trainings.describe_machine()}; {args.threads} threads, {args.num_workers} workers,"
        f" {args.samples} images, batch {args.batch_size}, {args.repeats} pairs",
        flush=True,
    )
    return measure_gpus(args) if args.gpu else measure_cpu(args)


def measure_cpu(args: argparse.Namespace) -> int:
    """Compare with the loop of S2 and, in this process, with bare loops."""
    results = compare(source_and_trainer(args), args)
    if any(outcome.failure for outcomes in results for outcome in outcomes):
        return 1
    pairs = [
        trainings.median_rate([ours]) / trainings.median_rate([source])
        for source, ours in zip(*results, strict=True)
    ]
    speedup = statistics.median(pairs)
    spread = f"pairs: {min(pairs):.2f} to {max(pairs):.2f}"
    print(f"trainer / loop as in S2: {speedup:.2f} ({spread}), at least {SOURCE_BUDGET}\n")
    torch.set_num_threads(args.threads)
    images = (*OLIVIA, f"--synthetic-samples={2 * args.batch_size}")
    overheads = [
        against_bare_loop([*images, f"--batch-size={args.batch_size}"], args.repeats),
        against_bare_loop([*DIGITS], 15 * args.repeats),
    ]
    print(ratios.table(overheads))
    return 0 if speedup >= SOURCE_BUDGET and all(ratio.kept for ratio in overheads) else 1


def compare(
    arms: Sequence[trainings.Arm], args: argparse.Namespace
) -> list[list[trainings.Outcome]]:
    """Run the commands in turn, and print the table."""
    environ = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    results = trainings.compare(arms, repeats=args.repeats, environ=environ)
    print(trainings.table(arms, results), flush=True)
    return results


def source_and_trainer(args: argparse.Namespace, num_gpus: int = 1) -> list[trainings.Arm]:
    """Return the loop of S2 and the trainer with the same data, model, optimizer and batch."""
    options = [*OLIVIA, f"--synthetic-samples={args.samples}", f"--epochs={args.epochs}"]
    options += ["--base-lr=0.02", f"--num-workers={args.num_workers}"]
    batch = f"--batch-size={args.batch_size}"
    source = (sys.executable, "-m", "tests.benchmarks.source_s2", *options, batch)
    arms = [trainings.Arm(name="loop as in S2", command=source)]
    for num_ranks in sorted({1, num_gpus}):
        batch = f"--batch-size={args.batch_size * num_ranks}"
        command = trainings.train_command([*options, batch], num_ranks=num_ranks)
        name = "trainer" if num_ranks == 1 else f"trainer, {num_ranks} GPUs"
        arms.append(trainings.Arm(name=name, command=command))
    return arms


def make_trainer(options: Sequence[str]) -> train.Trainer:
    """Return a trainer in this process, without output files and checkpoints."""
    # Models share code, of which only a few compiled versions are kept.
    torch.compiler.reset()
    args = arguments.parse_arguments([*options, "--log-seconds=1000000"])
    dist = distributed.read_dist_info({})
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = distributed.select_device("auto", dist, num_cuda_devices=num_gpus)
    return train.Trainer(args, dist, device)


def against_bare_loop(options: Sequence[str], repeats: int) -> ratios.Ratio:
    """Time epochs of the trainer and of a loop without it, alternately, in this process."""
    trainer = make_trainer(options)

    def epoch() -> None:
        trainer.train_epoch()
        synchronize(trainer.device)

    def next_epoch() -> None:
        if trainer.progress.step_in_epoch:
            trainer.progress.step_in_epoch = 0
            trainer.progress.epoch += 1

    label = f"an epoch of `{trainer.args.model}`: trainer / bare loop"
    bare, budget = make_bare_loop(trainer), BARE_BUDGET
    return ratios.measure(label, epoch, bare, repeats=repeats, budget=budget, after=next_epoch)


def make_bare_loop(trainer: train.Trainer) -> Callable[[], None]:
    """Return the epoch of a loop with the trainer's model, data, optimizer and batch.

    As the loops of the sources, it sums the training loss and counts the correct predictions.
    """
    model = copy.deepcopy(trainer.model)
    compiled = parallel.compile_model(model, trainer.compile_mode)
    optimizer = optim.make_optimizer(trainer.args, model.parameters())
    loss_function = nn.CrossEntropyLoss()
    data = trainer.task.train_data().to(trainer.device)
    draws = data.draws(seed=0, epoch=1)
    draws = draws if draws is None else draws.to(trainer.device)
    batch_size = trainer.plan.global_batch_size

    def epoch() -> None:
        model.train()
        loss_sum = correct = torch.zeros((), device=trainer.device)
        for index in torch.randperm(len(data)).to(trainer.device).split(batch_size):
            samples, labels = data.batch(index, draws)
            samples = loading.arrange(samples, torch.channels_last)
            optimizer.zero_grad()
            with trainer.autocast:
                logits = (compiled if len(index) == batch_size else model)(samples)
                loss = loss_function(logits, labels)
            loss.backward()
            optimizer.step()
            loss_sum = loss_sum + loss.detach() * len(index)
            correct = correct + (logits.detach().argmax(dim=1) == labels).sum()
        synchronize(trainer.device)

    return epoch


def measure_gpus(args: argparse.Namespace) -> int:
    """Print images/s and share of peak of whole runs, and of parts of a step on one GPU."""
    counts = [1, *sorted({1, torch.cuda.device_count()})]
    arms = source_and_trainer(args, counts[-1])
    results = compare(arms, args)
    options = [*OLIVIA, f"--synthetic-samples={args.samples}", f"--batch-size={args.batch_size}"]
    trainer = make_trainer(options)
    peak = trainer.peak_rate
    for arm, outcomes, num_gpus in zip(arms, results, counts, strict=True):
        show(arm.name, trainings.median_rate(outcomes) / num_gpus, peak)
    show("data path alone", rate(trainer, data_path(trainer), args.repeats), None)
    show("step alone", rate(trainer, steps(trainer, trainer.compiled), args.repeats), peak)
    overhead = against_bare_loop(options, args.repeats)
    # Half of the peak of bf16 in the data sheets of A100, H100, L40S and A10.
    tf32 = make_trainer([*options, "--precision=tf32"])
    tf32_rate = rate(tf32, steps(tf32, tf32.compiled), args.repeats)
    show("step alone, tf32", tf32_rate, peak and peak / 2)
    trainer = make_trainer(options)
    show("step alone, with DDP", ddp_rate(trainer, args.repeats), peak)
    print(ratios.table([overhead]))
    return 1 if any(outcome.failure for outcomes in results for outcome in outcomes) else 0


def show(name: str, images_per_second: float, peak: float | None) -> None:
    """Print the throughput of one GPU and its share of the peak, in images/s."""
    share = f"{images_per_second / peak:7.1%} of peak" if peak else ""
    print(f"{name:24} {images_per_second:10.1f} images/s per GPU {share}", flush=True)


def rate(trainer: train.Trainer, epoch: Callable[[], object], repeats: int) -> float:
    """Return the images/s of a part of an epoch, the median without the first call."""
    seconds = []
    for _ in range(repeats + 1):
        synchronize(trainer.device)
        started = time.perf_counter()
        epoch()
        synchronize(trainer.device)
        seconds.append(time.perf_counter() - started)
    num_images = trainer.plan.steps_per_epoch * trainer.plan.global_batch_size
    return num_images / statistics.median(seconds[1:])


def data_path(trainer: train.Trainer) -> Callable[[], None]:
    """Return an epoch that only prepares the batches."""

    def epoch() -> None:
        trainer.source.begin_epoch(1, 0)
        for step in range(trainer.plan.steps_per_epoch):
            for _ in trainer.source.micro_batches(step):
                pass

    return epoch


def steps(trainer: train.Trainer, model: nn.Module) -> Callable[[], None]:
    """Return an epoch of steps that all use the same batch."""
    optimizer = optim.make_optimizer(trainer.args, model.parameters())
    trainer.source.begin_epoch(1, 0)
    _, batch = next(iter(trainer.source.micro_batches(0)))
    model.train()

    def epoch() -> None:
        for _ in range(trainer.plan.steps_per_epoch):
            optimizer.zero_grad()
            with trainer.autocast:
                losses, _ = trainer.task.losses(model, batch)
            losses.mean().backward()
            optimizer.step()

    return epoch


def ddp_rate(trainer: train.Trainer, repeats: int) -> float:
    """Return the images/s of steps with DDP in a process group of one rank."""
    torch.distributed.init_process_group(store=torch.distributed.HashStore(), rank=0, world_size=1)
    trainer.mode = "ddp"
    model = parallel.compile_model(parallel.wrap(trainer), trainer.compile_mode)
    result = rate(trainer, steps(trainer, model), repeats)
    # The DDP module keeps the process group alive.
    del model
    torch.distributed.destroy_process_group()
    return result


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
