"""The command line of trainers.train."""

import argparse
import pathlib
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from trainers import data, errors, models, optim, parallel, presets
from trainers.bounds import natural, natural_real, naturals, positive, positive_real, share, whole


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; raise UsageError if it is invalid."""
    args = parser().parse_args(presets.expand(sys.argv[1:] if argv is None else argv))
    if args.gpu_ids:
        args.gpu_ids = [number for group in args.gpu_ids for number in group]
    return args


def parser() -> argparse.ArgumentParser:
    """Return the parser of trainers.train."""
    result = _Parser(
        prog="trainers.train",
        usage="python -m trainers.train [OPTIONS]",
        description="Train a classifier, or a task of your own, in one process or in several.",
        formatter_class=_HelpFormatter,
        # presets.expand does not recognize an abbreviated --preset.
        allow_abbrev=False,
    )
    presets.add_argument(result)
    data.add_arguments(result)
    _add_task(_Group(result, "task"))
    _add_length(_Group(result, "length"))
    _add_batch(_Group(result, "batch (one optimizer step per batch)"))
    _add_optimizer(_Group(result, "optimizer and learning rate"))
    _add_devices(_Group(result, "devices and precision"))
    _add_loading(_Group(result, "data loading"))
    _add_checkpoints(_Group(result, "checkpoints and stopping"))
    _add_output(_Group(result, "output"))
    return result


class _Group:
    """A group of options; a help text without `default:` gets the default appended."""

    def __init__(self, parser: argparse.ArgumentParser, title: str) -> None:
        self._add = parser.add_argument_group(title).add_argument

    def value(
        self, name: str, parse: Callable[[str], Any], default: Any, help: str, **more: Any
    ) -> None:
        """Add an option with a value; None: not set."""
        self._add(name, type=parse, default=default, help=help, **more)

    def choice(self, name: str, choices: Collection[str], default: str, help: str) -> None:
        """Add an option with one of several words."""
        self._add(name, choices=choices, default=default, help=help)

    def flag(self, name: str, help: str) -> None:
        """Add an option without a value."""
        self._add(name, action="store_true", help=help)


def _add_task(group: _Group) -> None:
    names = ", ".join(sorted(models.MODELS))
    text = f"model to train: {names}, or torchvision:NAME with a name of torchvision.models"
    group.value("--model", models.check_name, "cnn", text, metavar="NAME")
    text = (
        "a task of your own instead of --dataset and --model, as my_package.tasks:MyTask or"
        " tasks.py:MyTask"
    )
    group.value("--task", str, None, text, metavar="MODULE:CLASS")
    # A list in a spec repeats the option.
    more = {"nargs": "+", "action": "extend", "metavar": "NAME=VALUE"}
    group.value("--task-options", str, None, "arguments of the class of --task", **more)


def _add_length(group: _Group) -> None:
    group.value("--epochs", positive, 10, "number of epochs")
    text = (
        "optimizer steps of an epoch; default: all training data. Required for a stream without"
        " num_samples"
    )
    group.value("--steps-per-epoch", positive, None, text)
    text = "seed of the initial weights, the order of samples, augmentation and dropout"
    group.value("--seed", natural, 0, text)
    text = "stop when the validation accuracy reaches this value"
    group.value("--target-accuracy", share, None, text)
    text = "number of consecutive epochs that must reach --target-accuracy"
    group.value("--patience", positive, 2, text)
    text = (
        "stop after this many consecutive epochs without a better validation result (accuracy, or"
        " the best_metric of the task)"
    )
    group.value("--early-stopping-patience", positive, None, text)
    text = "smallest improvement that counts as better"
    group.value("--early-stopping-min-delta", share, 0.0, text)


def _add_batch(group: _Group) -> None:
    # Strong scaling fixes --batch-size, weak scaling fixes --per-device-batch-size.
    text = (
        "global batch size: samples per step over all ranks; default: 64, unless"
        " --per-device-batch-size is given"
    )
    group.value("--batch-size", positive, None, text)
    text = (
        "samples per rank (with --mode dp: per GPU) and forward pass; with --batch-size it"
        " determines the number of passes per step"
    )
    group.value("--per-device-batch-size", positive, None, text)
    text = "forward and backward passes per step; default: 1, unless both batch sizes are given"
    group.value("--gradient-accumulation-steps", positive, None, text)
    group.flag("--drop-last", "leave out the last batch of an epoch if it is incomplete")
    text = (
        "samples per rank and forward pass of an evaluation; default: 1000 for data in memory, else"
        " the training batch"
    )
    group.value("--eval-batch-size", positive, None, text)


def _add_optimizer(group: _Group) -> None:
    group.choice("--optimizer", optim.OPTIMIZERS, "sgd", "optimizer")
    text = "learning rate, used unchanged unless --lr-scaling is set"
    group.value("--base-lr", positive_real, 0.05, text)
    text = "how to scale the learning rate with the global batch size"
    group.choice("--lr-scaling", optim.LR_SCALINGS, "none", text)
    text = "global batch size for which --base-lr was chosen; required by --lr-scaling"
    group.value("--lr-base-batch-size", positive, None, text)
    text = "learning rate schedule after the warm-up"
    group.choice("--schedule", optim.SCHEDULES, "constant", text)
    text = "length of the linear warm-up; the learning rate increases at every step"
    group.value("--warmup-epochs", natural_real, 0.0, text)
    text = "length of the warm-up in steps; default: --warmup-epochs"
    group.value("--warmup-steps", natural, None, text)
    group.value("--min-lr", natural_real, 0.0, "final value of cosine and linear")
    group.value("--lr-gamma", share, 0.1, "factor of --schedule step")
    group.value("--lr-step-epochs", positive, 30, "epochs between two steps of --schedule step")
    group.value("--momentum", share, 0.9, "momentum of SGD")
    group.flag("--nesterov", "use Nesterov momentum (SGD)")
    group.value("--weight-decay", natural_real, 5e-4, "weight decay")
    text = "share of the label that is distributed over all classes"
    group.value("--label-smoothing", share, 0.0, text)
    group.value("--max-gradient-norm", positive_real, None, "clip the gradient to this norm")
    text = (
        "decay of an exponential moving average of the weights, which is evaluated instead of them"
    )
    group.value("--ema-decay", share, None, text)


def _add_devices(group: _Group) -> None:
    text = (
        "auto: ddp with several ranks, else single. fsdp: FSDP2, shards model and optimizer. dp:"
        " DataParallel, one process for all GPUs of the node, for comparison only"
    )
    group.choice("--mode", parallel.MODES, "auto", text)
    text = "auto: GPUs if PyTorch sees any, else the CPU"
    group.choice("--device", ("auto", "cpu", "cuda"), "auto", text)
    text = "GPUs that --mode dp uses, such as 0,1; default: all"
    group.value("--gpu-ids", naturals, None, text, nargs="+", action="extend")
    text = (
        "number format of the forward and backward pass; weights are always fp32. auto: bf16 on"
        " GPUs that support it, else fp32"
    )
    group.choice("--precision", optim.PRECISIONS, "auto", text)
    text = (
        "mode of torch.compile; auto: default on GPUs, off on the CPU. reduce-overhead uses CUDA"
        " graphs"
    )
    group.choice("--compile", parallel.COMPILE_MODES, "auto", text)
    text = "memory format of images and convolutions; auto: channels_last"
    group.choice("--memory-format", ("auto", "contiguous", "channels_last"), "auto", text)
    group.flag("--deterministic", "use only deterministic algorithms, which are slower")
    text = "recompute activations in the backward pass: less memory, more time"
    group.flag("--activation-checkpointing", text)
    group.flag("--sync-batch-norm", "compute batch-norm statistics over all ranks")
    text = "format in which DDP reduces gradients"
    group.choice("--gradient-compression", ("none", "bf16"), "none", text)
    text = "DDP: for models that do not use all parameters in each step"
    group.flag("--find-unused-parameters", text)
    group.flag("--static-graph", "DDP: the set of used parameters never changes")
    text = "size of DDP's gradient buckets; default: PyTorch's, 25"
    group.value("--bucket-cap-mb", positive, None, text)


def _add_loading(group: _Group) -> None:
    text = (
        "device: keep the whole data set on the device. loader: read each batch in worker"
        " processes. auto: device for data sets in memory that fit"
    )
    group.choice("--data-path", ("auto", "device", "loader"), "auto", text)
    text = "worker processes per rank of data path loader; default: 4"
    group.value("--num-workers", natural, None, text)
    group.value("--prefetch-factor", positive, 2, "batches that each worker prefetches")


def _add_checkpoints(group: _Group) -> None:
    text = (
        "folder of checkpoints; default: `checkpoints` in the run folder. Without a run folder, no"
        " checkpoints are written"
    )
    group.value("--checkpoint-dir", pathlib.Path, None, text)
    group.value("--checkpoint-epochs", positive, 1, "epochs between two checkpoints")
    text = "also write a checkpoint every so many steps"
    group.value("--checkpoint-steps", positive, None, text)
    text = "number of newest checkpoints to keep, in addition to the best"
    at_least_two = whole(2, why=": the newest checkpoint may be damaged")
    group.value("--keep-checkpoints", at_least_two, 2, text)
    text = (
        "auto: resume from the newest intact checkpoint. force: also if settings differ. never:"
        " start from scratch"
    )
    group.choice("--resume", ("auto", "force", "never"), "auto", text)
    text = "how long before the job's time limit to save and stop; at most a tenth of the limit"
    group.value("--stop-margin-seconds", natural_real, 90.0, text)


def _add_output(group: _Group) -> None:
    text = (
        "folder for metrics.jsonl, result.json and checkpoints; default: the run folder of the"
        " orchestrator job. Without a folder, nothing is written"
    )
    group.value("--run-dir", pathlib.Path, None, text)
    text = "write loss and throughput to metrics.jsonl about this often"
    group.value("--window-seconds", positive_real, 2.0, text)
    text = "write them every so many steps instead; default: --window-seconds"
    group.value("--window-steps", positive, None, text)
    text = "print progress within an epoch about this often; on a terminal there is a progress bar"
    group.value("--log-seconds", positive_real, 30.0, text)
    group.flag("--tensorboard", "also write the metrics for TensorBoard")
    text = "profile so many steps of rank 0, after ten warm-up steps; default: no profile"
    group.value("--profile-steps", positive, None, text)


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
