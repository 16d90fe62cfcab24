"""The command line of trainers.train."""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from trainers import bounds, datasets, errors, models, optimizers, precisions, presets, schedules


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; what it says wrong is a UsageError."""
    words = sys.argv[1:] if argv is None else argv
    return parser().parse_args(presets.expand(words))


def parser() -> argparse.ArgumentParser:
    """Return the parser of trainers.train."""
    result = _Parser(
        prog="trainers.train",
        description="Train a classifier on one process or on many.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        # A shortened --preset would not be found before the words are parsed.
        allow_abbrev=False,
    )
    presets.add_argument(result)
    datasets.add_arguments(result)
    result.add_argument("--model", choices=sorted(models.MODELS), default="cnn")
    _add_length(result.add_argument_group("length"))
    _add_batch(result.add_argument_group("batch: one batch is one optimizer step"))
    _add_optimizer(result.add_argument_group("optimizer and learning rate"))
    _add_computing(result.add_argument_group("where and how it computes"))
    _add_loading(result.add_argument_group("data path"))
    _add_checkpoints(result.add_argument_group("checkpoints and stopping"))
    _add_output(result.add_argument_group("output"))
    return result


def _add_length(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--epochs", type=bounds.positive, default=10)
    # Everything random follows from it: weights at the start, order, augmentation, dropout.
    group.add_argument("--seed", type=bounds.natural, default=0)
    group.add_argument(
        "--target-accuracy",
        type=bounds.share,
        help="validation accuracy that ends the training; without it all epochs are run",
    )
    group.add_argument(
        "--patience",
        type=bounds.positive,
        default=2,
        help="epochs in a row that must meet --target-accuracy",
    )
    group.add_argument(
        "--early-stopping-patience",
        type=bounds.positive,
        help="epochs in a row without a better validation accuracy that end the training",
    )
    group.add_argument(
        "--early-stopping-min-delta",
        type=bounds.share,
        default=0.0,
        help="how much more accuracy counts as better",
    )


def _add_batch(group: argparse._ArgumentGroup) -> None:
    # Strong scaling holds the first, weak scaling the second.
    group.add_argument(
        "--batch-size",
        type=bounds.positive,
        help="global batch size: samples a step over all ranks (64, unless"
        " --per-device-batch-size says it otherwise)",
    )
    group.add_argument(
        "--per-device-batch-size",
        type=bounds.positive,
        help="samples of one rank (with --mode dp, of one GPU) in one forward pass; together with"
        " --batch-size it says how many passes make a step",
    )
    group.add_argument(
        "--gradient-accumulation-steps",
        type=bounds.positive,
        help="forward and backward passes a step (1, unless both batch sizes say it otherwise)",
    )


def _add_optimizer(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--optimizer", choices=optimizers.NAMES, default="sgd")
    group.add_argument(
        "--base-lr",
        type=bounds.positive_real,
        default=0.05,
        help="learning rate, used as it is unless --lr-scaling says otherwise",
    )
    group.add_argument(
        "--lr-scaling",
        choices=schedules.SCALINGS,
        default="none",
        help="how the learning rate grows with the global batch size",
    )
    group.add_argument(
        "--lr-base-batch-size",
        type=bounds.positive,
        help="global batch size that --base-lr is meant for; needed by --lr-scaling",
    )
    group.add_argument("--schedule", choices=schedules.NAMES, default="constant")
    group.add_argument(
        "--warmup-epochs",
        type=bounds.natural_real,
        default=0.0,
        help="length of the linear warm-up; it goes up with each step",
    )
    group.add_argument(
        "--warmup-steps", type=bounds.natural, help="the same in steps, instead of --warmup-epochs"
    )
    group.add_argument(
        "--min-lr", type=bounds.natural_real, default=0.0, help="where cosine and linear end"
    )
    group.add_argument(
        "--lr-gamma", type=bounds.share, default=0.1, help="factor of --schedule step at each fall"
    )
    group.add_argument(
        "--lr-step-epochs", type=bounds.positive, default=30, help="epochs between its falls"
    )
    group.add_argument("--momentum", type=bounds.share, default=0.9, help="of SGD")
    group.add_argument("--nesterov", action="store_true", help="of SGD")
    group.add_argument("--weight-decay", type=bounds.natural_real, default=5e-4)
    group.add_argument("--label-smoothing", type=bounds.share, default=0.0)
    group.add_argument(
        "--max-gradient-norm", type=bounds.positive_real, help="clip the gradient to this norm"
    )


def _add_computing(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mode",
        choices=["auto", "single", "dp", "ddp"],
        default="auto",
        help="auto: ddp on several ranks, else single. dp: one process, all GPUs of the node"
        " (DataParallel), for comparison only",
    )
    group.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    group.add_argument(
        "--gpu-ids", type=bounds.natural, nargs="+", help="GPUs of --mode dp instead of all"
    )
    group.add_argument(
        "--precision",
        choices=precisions.NAMES,
        default="auto",
        help="of forward and backward; weights are fp32 always. auto: bf16 on a GPU that has it,"
        " else fp32",
    )
    group.add_argument(
        "--compile",
        choices=["off", "default", "reduce-overhead", "max-autotune"],
        default="off",
        help="mode of torch.compile",
    )
    group.add_argument(
        "--memory-format",
        choices=["auto", "contiguous", "channels_last"],
        default="auto",
        help="of images and convolutions; auto: channels_last for images",
    )
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="only operations that give the same bits each time, though slower",
    )
    group.add_argument(
        "--bucket-cap-mb", type=bounds.positive, help="size of DDP's gradient buckets (torch: 25)"
    )


def _add_loading(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data-path",
        choices=["auto", "device", "loader"],
        default="auto",
        help="device: the whole data set stays on the device. loader: worker processes bring each"
        " batch. auto: device where it fits",
    )
    group.add_argument(
        "--num-workers",
        type=bounds.natural,
        default=4,
        help="worker processes of each rank's loader",
    )
    group.add_argument(
        "--prefetch-factor", type=bounds.positive, default=2, help="batches each worker prepares"
    )


def _add_checkpoints(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--checkpoint-dir",
        type=pathlib.Path,
        help="folder of checkpoints; by default `checkpoints` in the run folder; without a run"
        " folder none are written",
    )
    group.add_argument(
        "--checkpoint-epochs",
        type=bounds.positive,
        default=1,
        help="epochs between two checkpoints",
    )
    group.add_argument(
        "--checkpoint-steps", type=bounds.positive, help="and steps between two, within an epoch"
    )
    group.add_argument(
        "--keep-checkpoints",
        type=bounds.whole(2, why=": the newest may be damaged when it is needed"),
        default=2,
        help="how many of the newest are kept, besides the best",
    )
    group.add_argument(
        "--resume",
        choices=["auto", "force", "never"],
        default="auto",
        help="auto: go on from the newest whole checkpoint. force: also where settings differ."
        " never: start anew",
    )
    group.add_argument(
        "--stop-margin-seconds",
        type=bounds.natural_real,
        default=90.0,
        help="how long before the job's time limit to save and stop, at most a tenth of the limit",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--run-dir",
        type=pathlib.Path,
        help="folder for metrics.jsonl, result.json and checkpoints; by default what the"
        " orchestrator's environment names, else nothing is written",
    )
    group.add_argument(
        "--window-steps",
        type=bounds.positive,
        default=20,
        help="steps between two entries of loss and step time in metrics.jsonl",
    )
    group.add_argument(
        "--tensorboard", action="store_true", help="also write the metrics for TensorBoard"
    )
    group.add_argument(
        "--profile-steps",
        type=bounds.positive,
        help="profile so many steps of rank 0, after ten that warm up",
    )


class _Parser(argparse.ArgumentParser):
    """A parser that says its error in one line: every rank says it."""

    def error(self, message: str) -> NoReturn:
        raise errors.UsageError(f"{message} (--help lists the arguments)")
