"""What rank 0 prints, in the format of the published Olivia DDP example, and result.json."""

import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import data as torch_data

from trainers import metrics, state
from trainers.data import batches

if TYPE_CHECKING:
    from trainers import train


def start_lines(trainer: "train.Trainer") -> str:
    dist, num_gpus = trainer.dist, gpus_per_node(trainer)
    lines = (
        f"Training started with {dist.world_size} processes across {dist.num_nodes} nodes.\n"
        f"Using {num_gpus} GPUs per node.\n"
    )
    if trainer.mode == "dp":
        lines = f"Using {num_gpus} GPUs.\n"
    run = trainer.description.items()
    return lines + "".join(f"  {name + ':':15} {text}\n" for name, text in run)


def gpus_per_node(trainer: "train.Trainer") -> int:
    if trainer.device.type != "cuda":
        return 0
    return trainer.num_devices if trainer.mode == "dp" else trainer.dist.local_world_size


def environment(trainer: "train.Trainer") -> dict[str, str | int | None]:
    """Return the environment of a run: launcher, ranks, device and versions."""
    dist, on_gpu = trainer.dist, trainer.device.type == "cuda"
    return {
        "mode": trainer.mode,
        "launcher": dist.launcher,
        "world_size": dist.world_size,
        "num_nodes": dist.num_nodes,
        "device": torch.cuda.get_device_name(trainer.device) if on_gpu else "cpu",
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda if on_gpu else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None,
        "python": platform.python_version(),
        "host": socket.gethostname(),
    }


def describe(trainer: "train.Trainer", *data: torch_data.Dataset[Any]) -> dict[str, str]:
    """Return what a run is, as printed at its start and stored in result.json."""
    args, plan, source, task = trainer.args, trainer.plan, trainer.source, trainer.task
    names, unit = task.description(), task.unit if task.units_per_sample == 1 else "samples"
    sizes = [batches.num_samples_of(part) for part in data]
    train_size, eval_size = ("a stream" if size is None else f"{size:,} {unit}" for size in sizes)
    device = "CPU"
    if trainer.device.type == "cuda":
        visible = trainer.environment["cuda_visible_devices"] or "not set"
        device = f"{trainer.environment['device']} (CUDA_VISIBLE_DEVICES={visible})"
    workers = f", {source.num_workers} worker(s) per rank" if source.name == "loader" else ""
    if source.name == "device" and args.num_workers is not None:
        workers = ", in memory: --num-workers has no effect"
    schedule, passes = trainer.schedule, plan.gradient_accumulation_steps
    warmup = f", {schedule.warmup_steps} warm-up steps" if schedule.warmup_steps else ""
    num_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    return {
        "model": f"{names['model']} ({num_parameters:,} parameters)",
        "data": f"{names['data']}: {train_size} for training, {eval_size} for evaluation",
        "data path": source.name + workers,
        "batch": f"{plan.global_batch_size} {unit} in {plan.steps_per_epoch} steps an epoch,"
        f" {plan.global_batch_size // passes // trainer.num_devices} on each device in {passes}"
        " pass(es) a step",
        "optimizer": f"{args.optimizer}, learning rate {schedule.peak:g} {args.schedule}{warmup}",
        "precision": f"{trainer.precision}, compile {trainer.compile_mode}",
        "devices": f"{trainer.num_devices} x {device}",
    }


def resume_lines(progress: state.Progress, changes: Sequence[str]) -> str:
    if progress.finished:
        return f"Training was complete after step {progress.step}: nothing to do.\n"
    lines = f"Resumed after step {progress.step}, in epoch {progress.epoch}.\n"
    if changes:
        lines += (
            f"Changed since the checkpoint: {'; '.join(changes)}. The order of samples is the same;"
            " rounding and the random numbers of dropout differ.\n"
        )
    return lines


def epoch_lines(
    epoch: int, num_epochs: int, span: metrics.Span, evaluation: Mapping[str, float], rate: str
) -> str:
    accuracy = ""
    if "accuracy" in evaluation:
        accuracy = f", Validation Accuracy: {evaluation['accuracy']:.4f}"
    return (
        f"Epoch {epoch}/{num_epochs} completed in {span.seconds:.3f} seconds\n"
        f"Validation Loss: {evaluation['loss']:.4f}{accuracy}\n"
        f"Epoch Throughput: {rate}\n"
    )


def summary_lines(trainer: "train.Trainer", *, is_success: bool) -> str:
    """Report the whole run; its time is the sum of the epochs."""
    progress, dist, task = trainer.progress, trainer.dist, trainer.task
    per_second = (progress.samples_per_second or 0.0) * task.units_per_sample
    num_gpus = trainer.num_devices if trainer.device.type == "cuda" else 0
    return (
        "\n"
        "Training Summary:\n"
        f"Total training time: {progress.seconds:.3f} seconds\n"
        f"Throughput: {per_second:.3f} {task.unit}/second\n"
        f"Number of nodes: {dist.num_nodes}\n"
        f"Number of GPUs per node: {gpus_per_node(trainer)}\n"
        f"Total GPUs used: {num_gpus}\n"
        f"Total processes: {dist.world_size}\n"
        f"Evaluation: {progress.eval_seconds:.3f} seconds\n"
        f"Waiting for checkpoints: {progress.checkpoint_seconds:.3f} seconds\n"
        + ("Training completed successfully.\n" if is_success else "")
    )


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


def advise(share: float, trainer: "train.Trainer") -> None:
    """Report on stderr if much time was spent waiting for data, with a fix."""
    if share > 0.1:
        metrics.warn(
            f"{share:.0%} of the epoch was spent waiting for data: increase --num-workers (now"
            f" {trainer.source.num_workers}; only if a stream has samples_at, as each worker reads"
            " all of it), --prefetch-factor and the number of CPUs; of data in memory, use"
            " --data-path device."
        )


class Log:
    """The lines of rank 0 and, within an epoch, a bar on a terminal, else a line now and then."""

    def __init__(self, log_seconds: float, outputs: metrics.Outputs | None, rank: int = 0) -> None:
        self._log_seconds, self._outputs, self._rank = log_seconds, outputs, rank
        self._last = time.monotonic()
        self._has_bar = False

    def update(self, epoch: str, step: int, num_steps: int, loss: float, rate: str) -> None:
        text = f"{epoch}, step {step}/{num_steps}, train loss: {loss:.4f}, {rate}"
        if self._rank == 0 and sys.stdout.isatty():
            line = f"[{'#' * (20 * step // num_steps):20}] {text}"
            print(f"\r{line[: shutil.get_terminal_size().columns - 1]}\033[K", end="", flush=True)
            self._has_bar = True
        elif time.monotonic() - self._last >= self._log_seconds:
            self.print(f"{text}\n")

    def print(self, lines: str) -> None:
        """Print lines with a single write; raise SupersededError if a newer attempt has started."""
        self.end()
        if self._outputs is not None:
            self._outputs.check()
        if self._rank == 0:
            print(lines, end="", flush=True)

    def end(self) -> None:
        """Remove the bar; after other lines no line of progress is due."""
        self._last = time.monotonic()
        if self._has_bar:
            print("\r\033[K", end="", flush=True)
            self._has_bar = False
