"""The command line of trainers.train."""

import argparse
import pathlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from trainers import bounds, data, errors, models, optim, parallel, presets


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; raise UsageError if it is invalid."""
    words = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(presets.expand(words))
    if args.gpu_ids:
        args.gpu_ids = [number for group in args.gpu_ids for number in group]
    return args


def parser() -> argparse.ArgumentParser:
    """Return the parser of trainers.train."""
    result = _Parser(
        prog="trainers.train",
        description="Train a classifier, or a task of your own, in one process or in several.",
        formatter_class=_HelpFormatter,
        # presets.expand does not recognize an abbreviated --preset.
        allow_abbrev=False,
    )
    presets.add_argument(result)
    data.add_arguments(result)
    for title, add in (
        ("task", _add_task),
        ("length", _add_length),
        ("batch (one optimizer step per batch)", _add_batch),
        ("optimizer and learning rate", _add_optimizer),
        ("devices and precision", _add_devices),
        ("data loading", _add_loading),
        ("checkpoints and stopping", _add_checkpoints),
        ("output", _add_output),
    ):
        add(result.add_argument_group(title).add_argument)
    return result


def _add_task(add: Any) -> None:
    add(
        "--model",
        type=models.check_name,
        default="cnn",
        metavar="NAME",
        help=f"model to train: {', '.join(sorted(models.MODELS))}, or torchvision:NAME with a name"
        " of torchvision.models, such as torchvision:resnet50",
    )
    add(
        "--task",
        metavar="MODULE:CLASS",
        help="a task of your own instead of --dataset and --model, as my_package.tasks:MyTask or"
        " tasks.py:MyTask",
    )
    add(
        "--task-options",
        nargs="+",
        # A list in a spec repeats the option.
        action="extend",
        metavar="NAME=VALUE",
        help="arguments of the class of --task",
    )


def _add_length(add: Any) -> None:
    add("--epochs", type=bounds.positive, default=10, help="number of epochs")
    add(
        "--steps-per-epoch",
        type=bounds.positive,
        help="optimizer steps of an epoch; default: all training data. Required for a stream"
        " without num_samples",
    )
    add(
        "--seed",
        type=bounds.natural,
        default=0,
        help="seed of the initial weights, the order of samples, augmentation and dropout",
    )
    add(
        "--target-accuracy",
        type=bounds.share,
        help="stop when the validation accuracy reaches this value",
    )
    add(
        "--patience",
        type=bounds.positive,
        default=2,
        help="number of consecutive epochs that must reach --target-accuracy",
    )
    add(
        "--early-stopping-patience",
        type=bounds.positive,
        help="stop after this many consecutive epochs without a better validation result (accuracy,"
        " or the best_metric of the task)",
    )
    add(
        "--early-stopping-min-delta",
        type=bounds.share,
        default=0.0,
        help="smallest improvement that counts as better",
    )


def _add_batch(add: Any) -> None:
    # Strong scaling fixes --batch-size, weak scaling fixes --per-device-batch-size.
    add(
        "--batch-size",
        type=bounds.positive,
        help="global batch size: samples per step over all ranks; default: 64, unless"
        " --per-device-batch-size is given",
    )
    add(
        "--per-device-batch-size",
        type=bounds.positive,
        help="samples per rank (with --mode dp: per GPU) and forward pass; with --batch-size it"
        " determines the number of passes per step",
    )
    add(
        "--gradient-accumulation-steps",
        type=bounds.positive,
        help="forward and backward passes per step; default: 1, unless both batch sizes are given",
    )
    add(
        "--drop-last",
        action="store_true",
        help="leave out the last batch of an epoch if it is incomplete",
    )
    add(
        "--eval-batch-size",
        type=bounds.positive,
        help="samples per rank and forward pass of an evaluation; default: 1000 for data in memory,"
        " else the training batch",
    )


def _add_optimizer(add: Any) -> None:
    add("--optimizer", choices=optim.OPTIMIZERS, default="sgd", help="optimizer")
    add(
        "--base-lr",
        type=bounds.positive_real,
        default=0.05,
        help="learning rate, used unchanged unless --lr-scaling is set",
    )
    add(
        "--lr-scaling",
        choices=optim.LR_SCALINGS,
        default="none",
        help="how to scale the learning rate with the global batch size",
    )
    add(
        "--lr-base-batch-size",
        type=bounds.positive,
        help="global batch size for which --base-lr was chosen; required by --lr-scaling",
    )
    add(
        "--schedule",
        choices=optim.SCHEDULES,
        default="constant",
        help="learning rate schedule after the warm-up",
    )
    add(
        "--warmup-epochs",
        type=bounds.natural_real,
        default=0.0,
        help="length of the linear warm-up; the learning rate increases at every step",
    )
    add(
        "--warmup-steps",
        type=bounds.natural,
        help="length of the warm-up in steps; default: --warmup-epochs",
    )
    add("--min-lr", type=bounds.natural_real, default=0.0, help="final value of cosine and linear")
    add("--lr-gamma", type=bounds.share, default=0.1, help="factor of --schedule step")
    add(
        "--lr-step-epochs",
        type=bounds.positive,
        default=30,
        help="epochs between two steps of --schedule step",
    )
    add("--momentum", type=bounds.share, default=0.9, help="momentum of SGD")
    add("--nesterov", action="store_true", help="use Nesterov momentum (SGD)")
    add("--weight-decay", type=bounds.natural_real, default=5e-4, help="weight decay")
    add(
        "--label-smoothing",
        type=bounds.share,
        default=0.0,
        help="share of the label that is distributed over all classes",
    )
    add("--max-gradient-norm", type=bounds.positive_real, help="clip the gradient to this norm")
    add(
        "--ema-decay",
        type=bounds.share,
        help="decay of an exponential moving average of the weights, which is evaluated instead of"
        " them",
    )


def _add_devices(add: Any) -> None:
    add(
        "--mode",
        choices=parallel.MODES,
        default="auto",
        help="auto: ddp with several ranks, else single. fsdp: FSDP2, shards model and optimizer."
        " dp: DataParallel, one process for all GPUs of the node, for comparison only",
    )
    add(
        "--device",
        choices=["auto", "cpu", "cuda"],
        default="auto",
        help="auto: GPUs if PyTorch sees any, else the CPU",
    )
    add(
        "--gpu-ids",
        type=bounds.naturals,
        nargs="+",
        action="extend",
        help="GPUs that --mode dp uses, such as 0,1; default: all",
    )
    add(
        "--precision",
        choices=optim.PRECISIONS,
        default="auto",
        help="number format of the forward and backward pass; weights are always fp32. auto: bf16"
        " on GPUs that support it, else fp32",
    )
    add(
        "--compile",
        choices=parallel.COMPILE_MODES,
        default="auto",
        help="mode of torch.compile; auto: default on GPUs, off on the CPU. reduce-overhead uses"
        " CUDA graphs",
    )
    add(
        "--memory-format",
        choices=["auto", "contiguous", "channels_last"],
        default="auto",
        help="memory format of images and convolutions; auto: channels_last",
    )
    add(
        "--deterministic",
        action="store_true",
        help="use only deterministic algorithms, which are slower",
    )
    add(
        "--activation-checkpointing",
        action="store_true",
        help="recompute activations in the backward pass: less memory, more time",
    )
    add(
        "--sync-batch-norm",
        action="store_true",
        help="compute batch-norm statistics over all ranks",
    )
    add(
        "--gradient-compression",
        choices=["none", "bf16"],
        default="none",
        help="format in which DDP reduces gradients",
    )
    add(
        "--find-unused-parameters",
        action="store_true",
        help="DDP: for models that do not use all parameters in each step",
    )
    add(
        "--static-graph",
        action="store_true",
        help="DDP: the set of used parameters never changes",
    )
    add(
        "--bucket-cap-mb",
        type=bounds.positive,
        help="size of DDP's gradient buckets; default: PyTorch's, 25",
    )


def _add_loading(add: Any) -> None:
    add(
        "--data-path",
        choices=["auto", "device", "loader"],
        default="auto",
        help="device: keep the whole data set on the device. loader: read each batch in worker"
        " processes. auto: device for data sets in memory that fit",
    )
    add(
        "--num-workers",
        type=bounds.natural,
        help="worker processes per rank of data path loader; default: 4",
    )
    add(
        "--prefetch-factor",
        type=bounds.positive,
        default=2,
        help="batches that each worker prefetches",
    )


def _add_checkpoints(add: Any) -> None:
    add(
        "--checkpoint-dir",
        type=pathlib.Path,
        help="folder of checkpoints; default: `checkpoints` in the run folder. Without a run"
        " folder, no checkpoints are written",
    )
    add(
        "--checkpoint-epochs",
        type=bounds.positive,
        default=1,
        help="epochs between two checkpoints",
    )
    add(
        "--checkpoint-steps",
        type=bounds.positive,
        help="also write a checkpoint every so many steps",
    )
    add(
        "--keep-checkpoints",
        type=bounds.whole(2, why=": the newest checkpoint may be damaged"),
        default=2,
        help="number of newest checkpoints to keep, in addition to the best",
    )
    add(
        "--resume",
        choices=["auto", "force", "never"],
        default="auto",
        help="auto: resume from the newest intact checkpoint. force: also if settings differ."
        " never: start from scratch",
    )
    add(
        "--stop-margin-seconds",
        type=bounds.natural_real,
        default=90.0,
        help="how long before the job's time limit to save and stop; at most a tenth of the limit",
    )


def _add_output(add: Any) -> None:
    add(
        "--run-dir",
        type=pathlib.Path,
        help="folder for metrics.jsonl, result.json and checkpoints; default: the run folder of"
        " the orchestrator job. Without a folder, nothing is written",
    )
    add(
        "--window-seconds",
        type=bounds.positive_real,
        default=2.0,
        help="write loss and throughput to metrics.jsonl about this often",
    )
    add(
        "--window-steps",
        type=bounds.positive,
        help="write them every so many steps instead; default: --window-seconds",
    )
    add(
        "--log-seconds",
        type=bounds.positive_real,
        default=30.0,
        help="print progress within an epoch about this often; on a terminal there is a progress"
        " bar",
    )
    add("--tensorboard", action="store_true", help="also write the metrics for TensorBoard")
    add(
        "--profile-steps",
        type=bounds.positive,
        help="profile so many steps of rank 0, after ten warm-up steps; default: no profile",
    )


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows each default; a help text that explains its own has the word `default:`."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        help_text = action.help or ""
        if "default:" in help_text or action.dest == "help":
            return help_text
        if action.default is None or action.default is False:
            return f"{help_text} (default: {'off' if action.default is False else 'none'})"
        return super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """A parser with errors of one line, because every rank prints them."""

    def error(self, message: str) -> NoReturn:
        raise errors.UsageError(f"{message} (--help lists the arguments)")
