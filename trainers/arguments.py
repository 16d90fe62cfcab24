"""The command line of trainers.train."""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from trainers import bounds, datasets, errors, models, optimizers, precisions, presets, schedules


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; raise UsageError if it is invalid."""
    words = sys.argv[1:] if argv is None else argv
    return parser().parse_args(presets.expand(words))


def parser() -> argparse.ArgumentParser:
    """Return the parser of trainers.train."""
    result = _Parser(
        prog="trainers.train",
        description="Train a classifier in one process or in several.",
        formatter_class=_HelpFormatter,
        # presets.expand does not recognize an abbreviated --preset.
        allow_abbrev=False,
    )
    presets.add_argument(result)
    datasets.add_arguments(result)
    result.add_argument(
        "--model", choices=sorted(models.MODELS), default="cnn", help="model to train"
    )
    _add_length(result.add_argument_group("length"))
    _add_batch(result.add_argument_group("batch (one optimizer step per batch)"))
    _add_optimizer(result.add_argument_group("optimizer and learning rate"))
    _add_computing(result.add_argument_group("device and precision"))
    _add_loading(result.add_argument_group("data loading"))
    _add_checkpoints(result.add_argument_group("checkpoints and stopping"))
    _add_output(result.add_argument_group("output"))
    return result


def _add_length(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--epochs", type=bounds.positive, default=10, help="number of epochs")
    group.add_argument(
        "--seed",
        type=bounds.natural,
        default=0,
        help="seed of the initial weights, the order of samples, augmentation and dropout",
    )
    group.add_argument(
        "--target-accuracy",
        type=bounds.share,
        help="stop when the validation accuracy reaches this value",
    )
    group.add_argument(
        "--patience",
        type=bounds.positive,
        default=2,
        help="number of consecutive epochs that must reach --target-accuracy",
    )
    group.add_argument(
        "--early-stopping-patience",
        type=bounds.positive,
        help="stop after this many consecutive epochs without a better validation accuracy",
    )
    group.add_argument(
        "--early-stopping-min-delta",
        type=bounds.share,
        default=0.0,
        help="smallest increase in accuracy that counts as better",
    )


def _add_batch(group: argparse._ArgumentGroup) -> None:
    # Strong scaling fixes --batch-size, weak scaling fixes --per-device-batch-size.
    group.add_argument(
        "--batch-size",
        type=bounds.positive,
        help="global batch size: samples per step over all ranks (64, unless"
        " --per-device-batch-size is given)",
    )
    group.add_argument(
        "--per-device-batch-size",
        type=bounds.positive,
        help="samples per rank (with --mode dp: per GPU) and forward pass; with --batch-size it"
        " determines the number of passes per step",
    )
    group.add_argument(
        "--gradient-accumulation-steps",
        type=bounds.positive,
        help="forward and backward passes per step (1, unless both batch sizes are given)",
    )


def _add_optimizer(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--optimizer", choices=optimizers.NAMES, default="sgd", help="optimizer")
    group.add_argument(
        "--base-lr",
        type=bounds.positive_real,
        default=0.05,
        help="learning rate, used unchanged unless --lr-scaling is set",
    )
    group.add_argument(
        "--lr-scaling",
        choices=schedules.SCALINGS,
        default="none",
        help="how to scale the learning rate with the global batch size",
    )
    group.add_argument(
        "--lr-base-batch-size",
        type=bounds.positive,
        help="global batch size for which --base-lr was chosen; required by --lr-scaling",
    )
    group.add_argument(
        "--schedule",
        choices=schedules.NAMES,
        default="constant",
        help="learning rate schedule after the warm-up",
    )
    group.add_argument(
        "--warmup-epochs",
        type=bounds.natural_real,
        default=0.0,
        help="length of the linear warm-up; the learning rate increases at every step",
    )
    group.add_argument("--warmup-steps", type=bounds.natural, help="length of the warm-up in steps")
    group.add_argument(
        "--min-lr", type=bounds.natural_real, default=0.0, help="final value of cosine and linear"
    )
    group.add_argument(
        "--lr-gamma", type=bounds.share, default=0.1, help="factor of --schedule step"
    )
    group.add_argument(
        "--lr-step-epochs",
        type=bounds.positive,
        default=30,
        help="epochs between two steps of --schedule step",
    )
    group.add_argument("--momentum", type=bounds.share, default=0.9, help="momentum of SGD")
    group.add_argument("--nesterov", action="store_true", help="use Nesterov momentum (SGD)")
    group.add_argument(
        "--weight-decay", type=bounds.natural_real, default=5e-4, help="weight decay"
    )
    group.add_argument(
        "--label-smoothing",
        type=bounds.share,
        default=0.0,
        help="share of the label that is distributed over all classes",
    )
    group.add_argument(
        "--max-gradient-norm", type=bounds.positive_real, help="clip the gradient to this norm"
    )


def _add_computing(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mode",
        choices=["auto", "single", "dp", "ddp"],
        default="auto",
        help="auto: ddp with several ranks, else single. dp: DataParallel, one process for all"
        " GPUs of the node, for comparison only",
    )
    group.add_argument(
        "--device",
        choices=["auto", "cpu", "cuda"],
        default="auto",
        help="auto: GPUs if PyTorch sees any, else the CPU",
    )
    group.add_argument(
        "--gpu-ids", type=bounds.natural, nargs="+", help="GPUs that --mode dp uses; default: all"
    )
    group.add_argument(
        "--precision",
        choices=precisions.NAMES,
        default="auto",
        help="number format of the forward and backward pass; weights are always fp32. auto: bf16"
        " on GPUs that support it, else fp32",
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
        help="memory format of images and convolutions; auto: channels_last for images",
    )
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="use only deterministic algorithms, which are slower",
    )
    group.add_argument(
        "--bucket-cap-mb",
        type=bounds.positive,
        help="size of DDP's gradient buckets (PyTorch's default: 25)",
    )


def _add_loading(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data-path",
        choices=["auto", "device", "loader"],
        default="auto",
        help="device: keep the whole data set on the device. loader: load each batch in worker"
        " processes. auto: device if the data set fits",
    )
    group.add_argument(
        "--num-workers",
        type=bounds.natural,
        default=4,
        help="worker processes per rank, for --data-path loader",
    )
    group.add_argument(
        "--prefetch-factor",
        type=bounds.positive,
        default=2,
        help="batches that each worker prefetches",
    )


def _add_checkpoints(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--checkpoint-dir",
        type=pathlib.Path,
        help="folder of checkpoints; default: `checkpoints` in the run folder. Without a run"
        " folder, no checkpoints are written",
    )
    group.add_argument(
        "--checkpoint-epochs",
        type=bounds.positive,
        default=1,
        help="epochs between two checkpoints",
    )
    group.add_argument(
        "--checkpoint-steps",
        type=bounds.positive,
        help="also write a checkpoint every so many steps",
    )
    group.add_argument(
        "--keep-checkpoints",
        type=bounds.whole(2, why=": the newest checkpoint may be damaged"),
        default=2,
        help="number of newest checkpoints to keep, in addition to the best",
    )
    group.add_argument(
        "--resume",
        choices=["auto", "force", "never"],
        default="auto",
        help="auto: resume from the newest intact checkpoint. force: also if settings differ."
        " never: start from scratch",
    )
    group.add_argument(
        "--stop-margin-seconds",
        type=bounds.natural_real,
        default=90.0,
        help="how long before the job's time limit to save and stop; at most a tenth of the limit",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--run-dir",
        type=pathlib.Path,
        help="folder for metrics.jsonl, result.json and checkpoints; default: the run folder of"
        " the orchestrator job. Without a folder, nothing is written",
    )
    group.add_argument(
        "--window-steps",
        type=bounds.positive,
        default=20,
        help="write loss and step time to metrics.jsonl every so many steps",
    )
    group.add_argument(
        "--tensorboard", action="store_true", help="also write the metrics for TensorBoard"
    )
    group.add_argument(
        "--profile-steps",
        type=bounds.positive,
        help="profile so many steps of rank 0, after ten warm-up steps",
    )


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, except those that are None or False."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """A parser with errors of one line, because every rank prints them."""

    def error(self, message: str) -> NoReturn:
        raise errors.UsageError(f"{message} (--help lists the arguments)")
