"""What a run is: settings that affect its results, its environment, and its description."""

import argparse
import os
import platform
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import data as torch_data

from trainers import distributed, errors, models
from trainers.data import loading, memory

if TYPE_CHECKING:
    from trainers import train

#: Arguments that must be the same to resume a run.
DECISIVE = (
    "dataset", "no_augmentation", "model", "task", "task_options", "seed", "steps_per_epoch",
    "drop_last", "optimizer", "base_lr", "lr_scaling", "lr_base_batch_size", "schedule",
    "warmup_epochs", "warmup_steps", "momentum", "nesterov", "weight_decay", "label_smoothing",
    "max_gradient_norm", "ema_decay",
)  # fmt: skip

#: Arguments that must be the same only with some learning rate schedules.
OF_SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "constant": (),
    "cosine": ("epochs", "min_lr"),
    "linear": ("epochs", "min_lr"),
    "step": ("lr_gamma", "lr_step_epochs"),
}

#: What may differ; the results then agree only up to rounding.
HARMLESS = ("mode", "world_size", "device", "torch", "cuda", "nccl")


def decisive(trainer: "train.Trainer", fingerprint: str) -> dict[str, Any]:
    """Return the settings that a checkpoint of this run must match; plain values only."""
    args = trainer.args
    unused = {} if args.task is None else {"dataset": None, "model": None}
    return {
        **{name: getattr(args, name) for name in DECISIVE + OF_SCHEDULES[args.schedule]},
        **unused,
        "precision": trainer.precision,
        "batch_size": trainer.plan.global_batch_size,
        "data_fingerprint": fingerprint,
    }


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differing settings as options: `--seed 0, now 1`."""
    return [
        f"--{name.replace('_', '-')} {saved.get(name)}, now {now.get(name)}"
        for name in sorted(saved.keys() | now.keys())
        if saved.get(name) != now.get(name)
    ]


def changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences of the environment: `world_size 2, now 1`."""
    return [
        f"{name} {saved.get(name)}, now {now.get(name)}"
        for name in HARMLESS
        if saved.get(name) != now.get(name)
    ]


def environment(trainer: "train.Trainer") -> dict[str, str | int | None]:
    """Return the environment of a run: launcher, ranks, device and versions."""
    dist, device = trainer.dist, trainer.device
    on_gpu = device.type == "cuda"
    return {
        "mode": trainer.mode,
        "launcher": dist.launcher.value,
        "world_size": dist.world_size,
        "num_nodes": dist.num_nodes,
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda if on_gpu else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None,
        "python": platform.python_version(),
        "host": socket.gethostname(),
    }


def describe(
    trainer: "train.Trainer",
    train_data: torch_data.Dataset[Any],
    eval_data: torch_data.Dataset[Any],
) -> dict[str, str]:
    """Return what a run is, as printed at its start and stored in result.json."""
    args, plan, source = trainer.args, trainer.plan, trainer.source
    names, unit = trainer.task.description(), trainer.task.unit
    if trainer.task.units_per_sample != 1:
        unit = "samples"
    sizes = [loading.num_samples_of(each) for each in (train_data, eval_data)]
    train_size, eval_size = ("a stream" if size is None else f"{size:,} {unit}" for size in sizes)
    parameters = models.num_parameters(trainer.model)
    device = "CPU"
    if trainer.device.type == "cuda":
        device = torch.cuda.get_device_name(trainer.device)
        device += f" (CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')})"
    workers = ""
    if source.name == "loader":
        workers = f", {loading.num_workers(args)} worker(s) per rank"
    elif args.num_workers is not None:
        workers = ", in memory: --num-workers has no effect"
    return {
        "model": f"{names['model']} ({parameters:,} parameters)",
        "data": f"{names['data']}: {train_size} for training, {eval_size} for evaluation",
        "data path": source.name + workers,
        "batch": f"{plan.global_batch_size} {unit} in {plan.steps_per_epoch} steps an epoch,"
        f" {plan.global_batch_size // plan.gradient_accumulation_steps // trainer.num_devices} on"
        f" each device in {plan.gradient_accumulation_steps} pass(es) a step",
        "optimizer": f"{args.optimizer}, learning rate {trainer.schedule.describe()}",
        "precision": f"{trainer.precision}, compile {trainer.compile_mode}",
        "devices": f"{trainer.num_devices} x {device}",
    }


def configure_torch(args: argparse.Namespace) -> None:
    """Set the global switches of PyTorch."""
    torch.backends.cudnn.benchmark = not args.deterministic
    if args.deterministic:
        # cuBLAS reads it at its first use (PyTorch, notes on reproducibility).
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def memory_format(choice: str, mode: str, model: torch.nn.Module) -> torch.memory_format:
    """Return the memory format of images and convolutions; raise UsageError if it cannot be used.

    channels_last also on CPUs: oneDNN's convolutions took 15 to 40 % less time (torch 2.15,
    x86-64). It does not exist for convolutions of volumes, and FSDP2 requires contiguous weights.
    """
    has_volumes = any(parameter.dim() == 5 for parameter in model.parameters())
    if mode == "fsdp" and choice == "channels_last":
        raise errors.UsageError("--memory-format channels_last does not work with --mode fsdp.")
    if choice == "contiguous" or (choice == "auto" and (has_volumes or mode == "fsdp")):
        return torch.contiguous_format
    return torch.channels_last


def data_fingerprint(trainer: "train.Trainer", *parts: torch_data.Dataset[Any]) -> str:
    """Return a fingerprint of the data; raise DataError if the ranks have different data."""
    fingerprint = "".join(memory.fingerprint(part) for part in parts)
    number = int(fingerprint, 16) % 2**63
    largest, smallest = distributed.all_reduce(torch.tensor([number, -number]), "max").tolist()
    if largest != -smallest:
        raise errors.DataError(
            f"The ranks have different data for {trainer.task.description()['data']}: on rank"
            f" {trainer.dist.rank} ({socket.gethostname()}) its fingerprint is {fingerprint}. Stage"
            " the data set again on the nodes that differ."
        )
    return fingerprint


def result(trainer: "train.Trainer", ending: str) -> dict[str, Any]:
    """Return the content of result.json; `ending` is `complete`, `stopped` or `diverged`."""
    progress, store = trainer.progress, trainer.store
    failure = store.failure if store is not None else None
    return {
        "ending": ending,
        "finished": progress.finished,
        "epochs": len(progress.history),
        "steps": progress.step,
        "num_samples": progress.num_samples,
        "train_seconds": progress.seconds,
        "eval_seconds": progress.eval_seconds,
        "checkpoint_seconds": progress.checkpoint_seconds,
        "samples_per_second": progress.samples_per_second,
        "best_val_accuracy": progress.best("accuracy"),
        "checkpoint_failure": None if failure is None else str(failure),
        "history": progress.history,
        "run": {**trainer.description, "compile": trainer.compile_mode},
        "settings": trainer.settings,
        "arguments": {name: str(value) for name, value in vars(trainer.args).items()},
        "environment": trainer.environment,
    }
