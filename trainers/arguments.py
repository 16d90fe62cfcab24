"""The command line of trainers.train, and presets: runs of the source documents, and recipes."""

import argparse
import contextlib
import math
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainers import models
from trainers.data import sources

_SCA = (
    "--dataset=mnist --model=sca-cnn --epochs=10 --optimizer=adadelta --base-lr=1.0"
    " --weight-decay=0 --schedule=step --lr-gamma=0.7 --lr-step-epochs=1 --precision=fp32"
)
# The learning rate scales with the effective batch, not with the number of GPUs as in the guide.
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
    # S0. Both are 128 per GPU.
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
    # Recommended recipes.
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
    """Parse the command line; exit with 2 if it is invalid."""
    words = sys.argv[1:] if argv is None else argv
    preset = parser().parse_args(words).preset
    # The arguments of the command line come last, so they override those of the preset.
    return parser().parse_args([*PRESETS.get(preset, "").split(), *words])


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="trainers.train",
        usage="python -m trainers.train [OPTIONS]",
        description="Train a classifier, or a task of your own, in one process or in several.",
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    text = "named set of arguments; arguments on the command line override it"
    result.add_argument("--preset", choices=sorted(PRESETS), help=text)
    add_data(result)
    _add_others(result)
    return result


def _number(
    kind: type[int] | type[float], what: str, fits: Callable[[float], bool]
) -> Callable[[str], Any]:
    """Return a parser of numbers that satisfy `fits`; `what` completes `-1 is not ...`."""
    limit = 2**63 if kind is int else math.inf  # int64

    def parse(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if fits(number := kind(text)) and number < limit:
                return number
        raise argparse.ArgumentTypeError(f"{text} is not {what}")

    return parse


natural = _number(int, "0 or a positive integer", lambda number: number >= 0)
positive = _number(int, "a positive integer", lambda number: number >= 1)
# The newest checkpoint may be damaged.
at_least_two = _number(int, "an integer of at least 2", lambda number: number >= 2)
natural_real = _number(float, "0 or a positive number", lambda number: number >= 0)
positive_real = _number(float, "a positive number", lambda number: number > 0)
share = _number(float, "a number between 0 and 1", lambda number: 0 <= number <= 1)
# Each tensor of the prefetched batches takes an open file.
prefetch_factor = _number(int, "an integer from 1 to 100", lambda number: 1 <= number <= 100)


def _list_of(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """Return a parser of `3,32,32`."""
    return lambda text: tuple(map(parse, text.split(",")))


def group(parser: argparse.ArgumentParser, title: str) -> Callable[..., None]:
    """Return a function that adds an option: name, type, bool or choices, default, help."""
    added = parser.add_argument_group(title)

    def add(name: str, kind: Any, default: Any, help: str, **more: Any) -> None:
        if kind is bool:
            added.add_argument(name, action="store_true", help=help)
        elif isinstance(kind, tuple):
            added.add_argument(name, choices=kind, default=default, help=help)
        else:
            added.add_argument(name, type=kind, default=default, help=help, **more)

    return add


def add_data(parser: argparse.ArgumentParser) -> None:
    add = group(parser, "data")
    names = ", ".join(sorted(sources.LOADERS))
    text = f"data set: {names}, or torchvision:NAME with a class of torchvision.datasets"
    add("--dataset", sources.check_name, "digits", text, metavar="NAME")
    folder = pathlib.Path(os.environ.get("DATA_DIR") or "datasets")
    add("--data-dir", pathlib.Path, folder, "folder of the data sets; DATA_DIR sets the default")
    add("--download", bool, False, "download missing files from their publisher")
    add("--no-augmentation", bool, False, "train without random crops and flips")
    add("--image-size", positive, None, "height, width; default: 224 for ImageFolder, else as is")
    add("--synthetic-shape", _list_of(positive), (3, 32, 32), "of a sample; C,H,W makes images")
    add("--synthetic-classes", positive, 10, "number of classes")
    add("--synthetic-samples", positive, 10_000, "number of training samples")


def _add_others(parser: argparse.ArgumentParser) -> None:
    add = group(parser, "task")
    names = ", ".join(sorted(models.MODELS))
    text = f"model to train: {names}, or torchvision:NAME with a name of torchvision.models"
    add("--model", models.check_name, "cnn", text, metavar="NAME")
    add("--task", str, None, "your own task, such as tasks.py:MyTask", metavar="MODULE:CLASS")
    # A list in a spec repeats the option.
    more = {"nargs": "+", "action": "extend", "metavar": "NAME=VALUE"}
    add("--task-options", str, None, "arguments of the class of --task", **more)
    add = group(parser, "length")
    add("--epochs", positive, 10, "number of epochs")
    add("--steps-per-epoch", positive, None, "optimizer steps of an epoch; default: all data")
    add("--seed", natural, 0, "seed of weights, order of samples, augmentation and dropout")
    add("--target-accuracy", share, None, "stop when the validation accuracy reaches it")
    add("--patience", positive, 2, "consecutive epochs that must reach --target-accuracy")
    add("--early-stopping-patience", positive, None, "epochs without progress until it stops")
    add("--early-stopping-min-delta", share, 0.0, "smallest improvement that counts")
    add = group(parser, "batch (one optimizer step per batch)")
    add("--batch-size", positive, None, "of all ranks; default: 64, or from the next two")
    add("--per-device-batch-size", positive, None, "samples per device and forward pass")
    add("--gradient-accumulation-steps", positive, None, "passes per step; default: as needed")
    add("--drop-last", bool, False, "leave out the last batch of an epoch if it is incomplete")
    add("--eval-batch-size", positive, None, "default: 1000 in memory, else as in training")
    add = group(parser, "optimizer and learning rate")
    add("--optimizer", ("adadelta", "adamw", "sgd"), "sgd", "optimizer")
    add("--base-lr", positive_real, 0.05, "learning rate before --lr-scaling")
    add("--lr-scaling", ("none", "linear", "sqrt"), "none", "scaling with the global batch size")
    add("--lr-base-batch-size", positive, None, "global batch size for which --base-lr was chosen")
    schedules = ("constant", "cosine", "linear", "step")
    add("--schedule", schedules, "constant", "learning rate after the warm-up")
    add("--warmup-epochs", natural_real, 0.0, "length of the linear warm-up, which is per step")
    add("--min-lr", natural_real, 0.0, "final value of cosine and linear")
    add("--lr-gamma", share, 0.1, "factor of --schedule step")
    add("--lr-step-epochs", positive, 30, "epochs between two steps of --schedule step")
    add("--momentum", share, 0.9, "momentum of SGD")
    add("--nesterov", bool, False, "use Nesterov momentum (SGD)")
    add("--weight-decay", natural_real, 5e-4, "weight decay")
    add("--label-smoothing", share, 0.0, "label smoothing of the cross entropy")
    add("--max-gradient-norm", positive_real, None, "clip the gradient to this norm")
    add("--ema-decay", share, None, "evaluate a moving average of the weights with this decay")
    add = group(parser, "devices and precision")
    modes = ("auto", "single", "dp", "ddp", "fsdp")
    add("--mode", modes, "auto", "auto: ddp if several ranks. dp: DataParallel")
    add("--device", ("auto", "cpu", "cuda"), "auto", "auto: GPUs if there are any")
    add("--gpu-ids", _list_of(natural), None, "of --mode dp, such as 0,1; default: all")
    precisions = ("auto", "fp32", "tf32", "bf16", "fp16")
    add("--precision", precisions, "auto", "auto: bf16 if the GPU has it, else fp32")
    modes = ("auto", "off", "default", "reduce-overhead", "max-autotune")
    add("--compile", modes, "auto", "mode of torch.compile; auto: on GPUs")
    add("--deterministic", bool, False, "use only deterministic algorithms, which are slower")
    add("--activation-checkpointing", bool, False, "recompute activations in the backward pass")
    add("--sync-batch-norm", bool, False, "compute batch-norm statistics over all ranks")
    add("--gradient-compression", ("none", "bf16"), "none", "format of DDP's gradients")
    add("--find-unused-parameters", bool, False, "DDP: some steps do not use all parameters")
    add("--static-graph", bool, False, "DDP: the set of used parameters never changes")
    add = group(parser, "data loading")
    add("--data-path", ("auto", "device", "loader"), "auto", "auto: on the device if it fits")
    add("--num-workers", natural, None, "worker processes per rank of the loader; default: 4")
    add("--prefetch-factor", prefetch_factor, 2, "batches that each worker prefetches")
    add = group(parser, "checkpoints and stopping")
    add("--checkpoint-dir", pathlib.Path, None, "default: `checkpoints` in the run folder")
    add("--checkpoint-epochs", positive, 1, "epochs between two checkpoints")
    add("--checkpoint-steps", positive, None, "also write one every so many steps")
    add("--keep-checkpoints", at_least_two, 2, "number of newest ones to keep, beside the best")
    add("--resume", ("auto", "force"), "auto", "force: also if settings differ")
    add("--stop-margin-seconds", natural_real, 90.0, "stop so long before the job's time limit")
    add = group(parser, "output")
    add("--run-dir", pathlib.Path, None, "folder of the output; default: that of the job, or none")
    add("--window-seconds", positive_real, 2.0, "time between two records of loss and throughput")
    add("--window-steps", positive, None, "steps between them instead; default: --window-seconds")
    add("--log-seconds", positive_real, 30.0, "time between two lines of progress in a log")
    add("--tensorboard", bool, False, "also write the metrics for TensorBoard")
    add("--profile-steps", positive, None, "steps of rank 0 to profile, after ten warm-up steps")


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows each default, except where the help text explains it."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        is_explained = "default: " in (action.help or "")
        return action.help if is_explained else super()._get_help_string(action)
