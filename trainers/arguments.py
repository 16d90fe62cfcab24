"""The command line of trainers.train, and presets.

`--preset NAME` stands for a set of arguments: a run of a source document or a recommended recipe.
Errors in the commands of the sources are corrected; docs/trainer.md lists them.
"""

import argparse
import difflib
import os
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

from trainers import errors, models, optim, parallel
from trainers.bounds import (
    natural,
    natural_real,
    naturals,
    positive,
    positive_real,
    positives,
    share,
    whole,
)
from trainers.data import sources

_SCA = (
    "--dataset=mnist --model=sca-cnn --epochs=10 --optimizer=adadelta --base-lr=1.0"
    " --weight-decay=0 --schedule=step --lr-gamma=0.7 --lr-step-epochs=1 --precision=fp32"
)
# The learning rate scales with the effective batch, not with the number of GPUs: the guide uses
# twice the rate for 8 x 16 samples as for 4 x 32, although both are 128.
_HAR = (
    "--dataset=har --model=har-flatten --epochs=20 --optimizer=adamw --base-lr=1e-3"
    " --lr-scaling=linear --lr-base-batch-size=32 --schedule=cosine --min-lr=1e-6"
    " --weight-decay=1e-4 --label-smoothing=0.1 --max-gradient-norm=1.0 --num-workers=4"
    " --early-stopping-patience=7 --early-stopping-min-delta=0.001"
)
_OLIVIA = (
    "--dataset=cifar100 --model=olivia-wrn --epochs=100 --optimizer=sgd --target-accuracy=0.95"
    " --patience=2"
)

PRESETS: Mapping[str, str] = {
    # S0. The guide compares 128 on one GPU with 256 on two, both as --batch-size: the batch per GPU
    # is the same.
    "sca-single": f"{_SCA} --mode=single --batch-size=128",
    "sca-dataparallel": f"{_SCA} --mode=dp --batch-size=256",
    # S1. Its batch sizes are per GPU.
    "har-single": f"{_HAR} --mode=single --per-device-batch-size=32 --warmup-epochs=2",
    "har-2gpu": f"{_HAR} --per-device-batch-size=32 --warmup-epochs=2",
    "har-4gpu": f"{_HAR} --per-device-batch-size=32 --warmup-epochs=3",
    "har-8gpu": f"{_HAR} --per-device-batch-size=16 --warmup-epochs=5",
    # With DataParallel the guide's batch of 32 would be divided among all GPUs.
    "har-dp": f"{_HAR} --mode=dp --batch-size=128 --warmup-epochs=2",
    "har-quick": f"{_HAR} --per-device-batch-size=32 --warmup-epochs=2 --epochs=5",
    "har-production": f"{_HAR} --per-device-batch-size=32 --warmup-epochs=3 --epochs=30",
    # S2. Its batch sizes are global; the single-GPU script uses plain SGD and fp32.
    "olivia-single": f"{_OLIVIA} --mode=single --batch-size=256 --base-lr=0.01 --momentum=0"
    " --weight-decay=0 --precision=fp32",
    "olivia": f"{_OLIVIA} --batch-size=1024 --base-lr=0.04 --momentum=0.9 --weight-decay=5e-4"
    " --precision=fp16",
    "olivia-two-nodes": f"{_OLIVIA} --batch-size=2048 --base-lr=0.04 --momentum=0.9"
    " --weight-decay=5e-4 --precision=fp16",
    # S4. AdamW without weight decay is Adam.
    "lesson05": "--dataset=synthetic --synthetic-shape=20 --synthetic-classes=10"
    " --synthetic-samples=10000 --model=lesson-mlp --epochs=10 --optimizer=adamw --base-lr=1e-3"
    " --weight-decay=0 --per-device-batch-size=32 --num-workers=2 --precision=fp32",
    # Recommended recipes. A cosine schedule to zero after a warm-up, Nesterov momentum, label
    # smoothing, and a learning rate for a batch of 256 that scales with the square root.
    "cifar100": "--dataset=cifar100 --model=wrn-16-10 --epochs=100 --batch-size=512 --optimizer=sgd"
    " --nesterov --base-lr=0.1 --lr-scaling=sqrt --lr-base-batch-size=256 --schedule=cosine"
    " --warmup-epochs=5 --weight-decay=5e-4 --label-smoothing=0.1",
    "mnist": "--dataset=mnist --model=cnn --epochs=6 --batch-size=64 --base-lr=0.02"
    " --schedule=cosine --warmup-epochs=0.5",
    "har": "--dataset=har --model=cnn1d --epochs=10 --batch-size=64 --base-lr=0.05"
    " --schedule=cosine --warmup-epochs=1",
    "digits": "--dataset=digits --model=cnn --epochs=10 --batch-size=64 --base-lr=0.05"
    " --schedule=cosine --warmup-epochs=1",
}


#: Options of the default task.
OF_CLASSIFICATION = (
    "dataset", "data_dir", "download", "no_augmentation", "image_size", "synthetic_shape",
    "synthetic_classes", "synthetic_samples", "model", "label_smoothing",
)  # fmt: skip


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; raise UsageError if it is invalid."""
    args = parser().parse_args(_expand_preset(sys.argv[1:] if argv is None else argv))
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
        # _expand_preset does not recognize an abbreviated --preset.
        allow_abbrev=False,
    )
    result.add_argument(
        "--preset",
        choices=sorted(PRESETS),
        help="named set of arguments; arguments on the command line override it",
    )
    add_data(result)
    _add_training(result)
    _add_execution(result)
    _add_files(result)
    return result


def ignored_with_task(args: argparse.Namespace) -> list[str]:
    """Return the options that are set, but have no effect with --task."""
    options = parser()
    return [
        f"--{name.replace('_', '-')}"
        for name in OF_CLASSIFICATION
        if getattr(args, name) != options.get_default(name)
    ]


def _expand_preset(words: Sequence[str]) -> list[str]:
    """Insert the arguments of the preset before those of the command line, which override them."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--preset")
    try:
        options, _ = finder.parse_known_args(list(words))
    # The full parser reports the error.
    except argparse.ArgumentError:
        return list(words)
    return [*PRESETS.get(options.preset or "", "").split(), *words]


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


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the options for data."""
    group = _Group(parser, "data")
    text = (
        f"data set: {', '.join(sorted(sources.NAMES))}, or torchvision:NAME with a class of"
        " torchvision.datasets, such as torchvision:ImageFolder"
    )
    group.value("--dataset", sources.check_name, "digits", text, metavar="NAME")
    folder = pathlib.Path(os.environ.get("DATA_DIR") or "datasets")
    text = "folder of the data sets; DATA_DIR in the environment changes the default"
    group.value("--data-dir", pathlib.Path, folder, text)
    group.flag("--download", "download missing files from their publisher")
    group.flag("--no-augmentation", "train without random crops and flips")
    text = "height and width of torchvision:NAME images; default: 224 for ImageFolder, else as is"
    group.value("--image-size", positive, None, text, metavar="PIXELS")
    text = "shape of a sample of --dataset synthetic; C,H,W makes images, others plain numbers"
    group.value("--synthetic-shape", positives, (3, 32, 32), text)
    group.value("--synthetic-classes", positive, 10, "number of classes")
    group.value("--synthetic-samples", positive, 10_000, "number of training samples")


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = _Group(parser, "task")
    names = ", ".join(sorted(models.MODELS))
    text = f"model to train: {names}, or torchvision:NAME with a name of torchvision.models"
    group.value("--model", models.check_name, "cnn", text, metavar="NAME")
    text = "your own task instead of --dataset and --model, such as tasks.py:MyTask"
    group.value("--task", str, None, text, metavar="MODULE:CLASS")
    # A list in a spec repeats the option.
    more = {"nargs": "+", "action": "extend", "metavar": "NAME=VALUE"}
    group.value("--task-options", str, None, "arguments of the class of --task", **more)
    group = _Group(parser, "length")
    group.value("--epochs", positive, 10, "number of epochs")
    text = (
        "optimizer steps of an epoch; default: all data. Required for a stream without num_samples"
    )
    group.value("--steps-per-epoch", positive, None, text)
    text = "seed of the initial weights, the order of samples, augmentation and dropout"
    group.value("--seed", natural, 0, text)
    group.value("--target-accuracy", share, None, "stop when the validation accuracy reaches it")
    group.value("--patience", positive, 2, "consecutive epochs that must reach --target-accuracy")
    text = "stop after so many epochs without a better result (accuracy, or the task's best_metric)"
    group.value("--early-stopping-patience", positive, None, text)
    group.value("--early-stopping-min-delta", share, 0.0, "smallest improvement that counts")
    group = _Group(parser, "batch (one optimizer step per batch)")
    # Strong scaling fixes --batch-size, weak scaling fixes --per-device-batch-size.
    text = "samples per step over all ranks; default: 64, unless --per-device-batch-size is set"
    group.value("--batch-size", positive, None, text)
    text = "samples per rank (with --mode dp: per GPU) and forward pass"
    group.value("--per-device-batch-size", positive, None, text)
    text = "forward and backward passes per step; default: 1, unless both batch sizes are given"
    group.value("--gradient-accumulation-steps", positive, None, text)
    group.flag("--drop-last", "leave out the last batch of an epoch if it is incomplete")
    text = "the same for evaluation; default: 1000 for data in memory, else the training batch"
    group.value("--eval-batch-size", positive, None, text)
    group = _Group(parser, "optimizer and learning rate")
    group.choice("--optimizer", optim.OPTIMIZERS, "sgd", "optimizer")
    group.value("--base-lr", positive_real, 0.05, "learning rate before --lr-scaling")
    group.choice("--lr-scaling", optim.LR_SCALINGS, "none", "scaling with the global batch size")
    text = "global batch size for which --base-lr was chosen; required by --lr-scaling"
    group.value("--lr-base-batch-size", positive, None, text)
    group.choice("--schedule", optim.SCHEDULES, "constant", "learning rate after the warm-up")
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
    group.value("--label-smoothing", share, 0.0, "label smoothing of the cross entropy")
    group.value("--max-gradient-norm", positive_real, None, "clip the gradient to this norm")
    text = "decay of a moving average of the weights, which is evaluated instead of them"
    group.value("--ema-decay", share, None, text)


def _add_execution(parser: argparse.ArgumentParser) -> None:
    group = _Group(parser, "devices and precision")
    text = (
        "auto: ddp with several ranks, else single. fsdp: FSDP2, shards model and optimizer. dp:"
        " DataParallel, one process for all GPUs of the node, for comparison only"
    )
    group.choice("--mode", parallel.MODES, "auto", text)
    group.choice("--device", ("auto", "cpu", "cuda"), "auto", "auto: GPUs if there are any")
    text = "GPUs that --mode dp uses, such as 0,1; default: all"
    group.value("--gpu-ids", naturals, None, text, nargs="+", action="extend")
    text = "format of computation; weights are fp32. auto: bf16 if the GPU has it, else fp32"
    group.choice("--precision", optim.PRECISIONS, "auto", text)
    text = "torch.compile mode; auto: default on GPUs, else off. reduce-overhead uses CUDA graphs"
    group.choice("--compile", parallel.COMPILE_MODES, "auto", text)
    text = "memory format of images and convolutions; auto: channels_last"
    group.choice("--memory-format", ("auto", "contiguous", "channels_last"), "auto", text)
    group.flag("--deterministic", "use only deterministic algorithms, which are slower")
    group.flag("--activation-checkpointing", "recompute activations in the backward pass")
    group.flag("--sync-batch-norm", "compute batch-norm statistics over all ranks")
    group.choice("--gradient-compression", ("none", "bf16"), "none", "format of DDP's gradients")
    group.flag("--find-unused-parameters", "DDP: some steps do not use all parameters")
    group.flag("--static-graph", "DDP: the set of used parameters never changes")
    group.value("--bucket-cap-mb", positive, None, "DDP's gradient buckets; default: PyTorch's, 25")
    group = _Group(parser, "data loading")
    text = "device: all data stays there. loader: workers read it. auto: device if it fits"
    group.choice("--data-path", ("auto", "device", "loader"), "auto", text)
    text = "worker processes per rank of data path loader; default: 4"
    group.value("--num-workers", natural, None, text)
    group.value("--prefetch-factor", positive, 2, "batches that each worker prefetches")


def _add_files(parser: argparse.ArgumentParser) -> None:
    group = _Group(parser, "checkpoints and stopping")
    text = "folder of checkpoints; default: `checkpoints` in the run folder, if there is one"
    group.value("--checkpoint-dir", pathlib.Path, None, text)
    group.value("--checkpoint-epochs", positive, 1, "epochs between two checkpoints")
    group.value("--checkpoint-steps", positive, None, "also write one every so many steps")
    text = "number of newest checkpoints to keep, in addition to the best"
    at_least_two = whole(2, why=": the newest checkpoint may be damaged")
    group.value("--keep-checkpoints", at_least_two, 2, text)
    text = (
        "auto: from the newest intact checkpoint. force: also if settings differ. never: no resume"
    )
    group.choice("--resume", ("auto", "force", "never"), "auto", text)
    text = "how long before the job's time limit to save and stop; at most a tenth of the limit"
    group.value("--stop-margin-seconds", natural_real, 90.0, text)
    group = _Group(parser, "output")
    text = "folder of the output; default: that of the orchestrator job. Without one, no files"
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
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        names = [name for action in self._actions for name in action.option_strings]
        if unknown and (similar := difflib.get_close_matches(unknown[1], names, n=1)):
            message += f": did you mean {similar[0]}?"
        raise errors.UsageError(f"{message} (--help lists the arguments)")
