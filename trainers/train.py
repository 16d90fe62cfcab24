"""Train an image classifier on one process or on many; this file reads from top to bottom.

One process:                 python -m trainers.train
All GPUs of one node:        torchrun --standalone --nproc-per-node=4 -m trainers.train --epochs 20
Several nodes, on each:      torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d \\
                                 --rdzv-id=JOB --rdzv-endpoint=HOST:PORT -m trainers.train
One srun task for each rank: srun --ntasks-per-node=4 python -m trainers.train
                                 (with MASTER_ADDR and MASTER_PORT exported)

In a job of the orchestrator the environment names the file for metrics (ORCHESTRATOR_METRICS_FILE),
the run folder, the array task and the attempt (ORCHESTRATOR_RUN_DIR, _TASK, _ATTEMPT); none of them
is needed.
"""

import argparse
import contextlib
import inspect
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import nn
from torch.distributed.elastic.multiprocessing import errors as elastic_errors
from torch.nn import functional, parallel

from trainers import datasets, errors, evaluation, fence, metrics, models, ranks, report


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; what it says wrong is a UsageError."""
    parser = _Parser(
        prog="trainers.train",
        description="Train an image classifier on one process or on many.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    # What is learned, and by what.
    datasets.add_arguments(parser)
    parser.add_argument("--model", choices=sorted(models.MODELS), default="cnn")
    # How long.
    parser.add_argument("--epochs", type=_positive_int, default=10)
    # One batch is one optimizer step. Strong scaling holds the first, weak scaling the second.
    batch = parser.add_mutually_exclusive_group()
    batch.add_argument(
        "--batch-size",
        type=_positive_int,
        default=64,
        help="images a step over all ranks; the world size must divide it",
    )
    batch.add_argument(
        "--per-device-batch-size",
        type=_positive_int,
        help="images a step on each rank, said instead of --batch-size",
    )
    # SGD with momentum. The rate is constant and is not scaled: whoever changes the batch size
    # chooses the rate that goes with it.
    parser.add_argument(
        "--base-lr",
        type=_positive_float,
        default=0.05,
        help="learning rate, used as it is for any batch size and number of ranks",
    )
    parser.add_argument("--momentum", type=_share, default=0.9, help="of SGD")
    parser.add_argument("--weight-decay", type=_share, default=5e-4, help="of SGD")
    # Everything random follows from it: the weights at the start and the order of the images.
    parser.add_argument("--seed", type=_natural, default=0)
    # Early stopping.
    parser.add_argument(
        "--target-accuracy",
        type=_share,
        help="validation accuracy that ends the training; without it all epochs are run",
    )
    parser.add_argument(
        "--patience",
        type=_positive_int,
        default=2,
        help="epochs in a row that must meet --target-accuracy",
    )
    # Where and how it computes.
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument(
        "--precision",
        choices=["fp32", "bf16"],
        default="fp32",
        help="of forward and backward; weights are fp32 always",
    )
    # What is written.
    parser.add_argument(
        "--run-dir",
        type=pathlib.Path,
        help="folder for metrics.jsonl; by default what the orchestrator's environment names, else"
        " no metrics are written",
    )
    parser.add_argument(
        "--window-steps",
        type=_positive_int,
        default=20,
        help="steps between two entries of loss and step time in metrics.jsonl",
    )
    return parser.parse_args(argv)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Find out where this process stands, check what was asked for, and train."""
    place = ranks.read_ranks(environ)
    batch_size = global_batch_size(arguments, place.world_size)
    device = ranks.select_device(
        arguments.device,
        place,
        num_cuda_devices=torch.cuda.device_count() if torch.cuda.is_available() else 0,
    )
    precision = autocast(arguments.precision, device)
    metrics_file = open_metrics(arguments.run_dir, environ, place)
    with ranks.process_group(place, device):
        train(arguments, place, device, batch_size, precision, metrics_file)


def train(
    arguments: argparse.Namespace,
    place: ranks.Ranks,
    device: torch.device,
    batch_size: int,
    precision: contextlib.AbstractContextManager[object],
    metrics_file: metrics.MetricsFile | None,
) -> None:
    """Train within a process group, from the data to the summary."""
    data = datasets.load_on_all_ranks(
        arguments.dataset, datasets.read_options(arguments), place, device
    )
    num_train = len(data.train_images)
    if batch_size > num_train:
        raise errors.UsageError(
            f"A batch of {batch_size} images is larger than the training set of {data.name},"
            f" {num_train}: use a smaller batch or fewer ranks."
        )

    # The same weights on every rank, DDP or not: a seed of its own for each rank would only be
    # overwritten when DDP spreads rank 0's.
    torch.manual_seed(arguments.seed)
    model = models.MODELS[arguments.model](data.train_images.shape[1:], data.num_classes)
    model.to(device)
    trained = wrap(model, place, device)
    optimizer = torch.optim.SGD(
        trained.parameters(),
        lr=arguments.base_lr,
        momentum=arguments.momentum,
        weight_decay=arguments.weight_decay,
        fused=device.type == "cuda",
    )

    num_gpus = place.world_size if device.type == "cuda" else 0
    gpus_per_node = place.local_world_size if device.type == "cuda" else 0
    if place.rank == 0:
        report.write(report.start_lines(place, gpus_per_node))

    epoch_meter = metrics.SpanMeter(device)
    window_meter = metrics.SpanMeter(device)
    step = 0
    total_samples = 0
    total_seconds = 0.0
    epochs_on_target = 0
    for epoch in range(1, arguments.epochs + 1):
        trained.train()
        order = datasets.permutation(arguments.seed, epoch, num_train).to(device)
        ranks.wait_for_all()
        epoch_meter.start()
        window_meter.start()
        window_begin = step
        # The last batch may be smaller: it is trained on too, with its own weight.
        for first in range(0, num_train, batch_size):
            batch = order[first : first + batch_size]
            mine = batch[datasets.rank_slice(len(batch), place.rank, place.world_size)]
            samples, labels = data.train_batch(mine, seed=arguments.seed, epoch=epoch)
            loss_sum = train_step(
                trained,
                optimizer,
                samples,
                labels,
                batch_size=len(batch),
                world_size=place.world_size,
                precision=precision,
            )
            epoch_meter.add(len(mine), loss_sum)
            window_meter.add(len(mine), loss_sum)
            step += 1
            if step - window_begin == arguments.window_steps:
                window = window_meter.read()
                # The run's first window holds what happens once: allocation, tuning, buckets.
                if metrics_file is not None and window_begin > 0:
                    metrics_file.append(
                        metrics.window_metrics(
                            window, num_steps=arguments.window_steps, step=step, epoch=epoch
                        )
                    )
                window_begin = step
                window_meter.start()
        span = epoch_meter.read()
        total_samples += span.num_samples
        total_seconds += span.seconds

        evaluation.average_batch_norm(model, place.world_size)
        result = evaluation.evaluate(model, data, place, precision)
        if metrics_file is not None:
            learning_rate = optimizer.param_groups[0]["lr"]
            metrics_file.append(
                metrics.epoch_metrics(span, result, learning_rate, step=step, epoch=epoch)
            )
        if place.rank == 0:
            report.write(report.epoch_lines(epoch, arguments.epochs, span, result))

        target = arguments.target_accuracy
        on_target = target is not None and result.accuracy >= target
        epochs_on_target = epochs_on_target + 1 if on_target else 0
        if ranks.decide_on_rank_0(epochs_on_target >= arguments.patience, device):
            if place.rank == 0:
                report.write(report.early_stop_line(epoch))
            break

    if metrics_file is not None:
        metrics_file.append(
            metrics.summary_metrics(
                num_samples=total_samples, seconds=total_seconds, step=step, epoch=epoch
            )
        )
    if place.rank == 0:
        report.write(
            report.summary_lines(
                place,
                num_samples=total_samples,
                seconds=total_seconds,
                gpus_per_node=gpus_per_node,
                num_gpus=num_gpus,
            )
        )


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    batch_size: int,
    world_size: int,
    precision: contextlib.AbstractContextManager[object],
) -> torch.Tensor:
    """Do one optimizer step; return the sum of the losses of this rank's images, on the device.

    The images are this rank's part of a batch of `batch_size` over all ranks; a rank with none
    takes part all the same. It never waits for the device.
    """
    optimizer.zero_grad()
    with precision:
        logits = model(images)
    loss_sum = functional.cross_entropy(logits.float(), labels, reduction="sum")
    # DDP divides the sum of the ranks' gradients by the world size; the mean is over the batch.
    (loss_sum * (world_size / batch_size)).backward()
    optimizer.step()
    return loss_sum.detach()


def wrap(model: nn.Module, place: ranks.Ranks, device: torch.device) -> nn.Module:
    """Wrap the model for DDP where there is more than one rank."""
    if place.world_size == 1:
        return model
    # Batch-norm statistics are averaged before each evaluation, not sent with each forward. The
    # option was renamed in torch 2.13, which warns about the old name.
    known = inspect.signature(parallel.DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    sync_buffers: dict[str, Any] = {name: False}
    return parallel.DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        **sync_buffers,
    )


def global_batch_size(arguments: argparse.Namespace, world_size: int) -> int:
    """Return the number of images a step over all ranks."""
    if arguments.per_device_batch_size is not None:
        return int(arguments.per_device_batch_size * world_size)
    size = int(arguments.batch_size)
    below = size - size % world_size
    if below == 0:
        raise errors.UsageError(
            f"--batch-size {size} is smaller than the number of ranks, {world_size}:"
            f" use {world_size} or a multiple of it."
        )
    if below != size:
        raise errors.UsageError(
            f"--batch-size {size} can't be divided by the number of ranks, {world_size}:"
            f" use {below} or {below + world_size}."
        )
    return size


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Return the context of forward passes; it can be entered again and again."""
    if (
        precision == "bf16"
        and device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise errors.UsageError(
            f"--precision bf16, but {torch.cuda.get_device_name(device)} has no bf16: use fp32."
        )
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def open_metrics(
    run_dir: pathlib.Path | None, environ: Mapping[str, str], place: ranks.Ranks
) -> metrics.MetricsFile | None:
    """Return rank 0's metrics file, and None on other ranks or where no place for it is named."""
    path = metrics.file_path(run_dir, environ)
    if place.rank != 0 or path is None:
        return None
    if not path.parent.is_dir():
        raise errors.UsageError(
            f"The run folder {path.parent} is no folder here: make it, or bind it into the"
            " container."
        )
    attempt_fence = fence.read_fence(environ, path.parent)
    if attempt_fence is not None:
        attempt_fence.check()
    return metrics.MetricsFile(path, attempt_fence=attempt_fence, world_size=place.world_size)


@elastic_errors.record
def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line; an expected failure is one line on stderr and an exit code."""
    try:
        run(parse_arguments(argv), os.environ)
    except errors.TrainerError as error:
        sys.stderr.write(f"trainers.train: error: {error}\n")
        sys.stderr.flush()
        raise SystemExit(error.exit_code) from error


class _Parser(argparse.ArgumentParser):
    """A parser that says its error in one line: every rank says it."""

    def error(self, message: str) -> NoReturn:
        raise errors.UsageError(f"{message} (--help lists the arguments)")


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def _positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def _positive_float(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return number


if __name__ == "__main__":
    main()
