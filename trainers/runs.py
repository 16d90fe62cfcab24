"""Assembles a run from the arguments: data, model, optimizer, device."""

import argparse
import dataclasses
import functools
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainers import (
    batches,
    checkpoints,
    data_paths,
    datasets,
    errors,
    metrics,
    models,
    optimizers,
    outputs,
    precisions,
    profiling,
    progress,
    ranks,
    schedules,
    settings,
    steps,
    stopping,
    training,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """The environment of a run, determined before data is read."""

    #: The command line.
    wanted: argparse.Namespace
    #: Rank of this process, and the size of the run.
    place: ranks.Ranks
    #: `single`, `dp` or `ddp`.
    mode: str
    #: Device of this rank; with DataParallel the first one.
    device: torch.device
    #: GPUs of DataParallel.
    gpu_ids: Sequence[int]
    #: Output files.
    files: outputs.Outputs
    #: Whether checkpoints are enabled.
    is_saved: bool
    #: Rank 0's checkpoints.
    store: checkpoints.Store | None
    #: Decides when to stop.
    stopper: stopping.Stopper

    @property
    def num_devices(self) -> int:
        """Number of devices that share a forward pass."""
        return max(1, len(self.gpu_ids)) if self.mode == "dp" else self.place.world_size

    @property
    def num_gpus(self) -> int:
        """Number of GPUs of the run, as reported."""
        return self.num_devices if self.device.type == "cuda" else 0

    @property
    def gpus_per_node(self) -> int:
        """Number of GPUs of this node."""
        if self.device.type != "cuda":
            return 0
        return self.num_devices if self.mode == "dp" else self.place.local_world_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The parts of a run that do not change during training."""

    #: Environment of the run.
    launch: Launch
    #: How an epoch is divided into steps.
    plan: batches.Plan
    #: Learning rate of each step.
    schedule: schedules.Schedule
    #: Conditions that end the run before the last epoch.
    goals: progress.Goals
    #: Provides the samples.
    source: data_paths.DataPath
    #: Settings that affect the results.
    settings: Mapping[str, Any]
    #: Launcher, device and versions.
    surroundings: Mapping[str, Any]
    #: The profiler, if enabled.
    profile: profiling.Profile | None


def prepare(wanted: argparse.Namespace, environ: Mapping[str, str]) -> Launch:
    """Determine rank and device of this process, and check the arguments."""
    place = ranks.read_ranks(environ)
    mode = steps.resolve_mode(wanted, place)
    device = ranks.select_device(
        wanted.device,
        place,
        num_cuda_devices=torch.cuda.device_count() if torch.cuda.is_available() else 0,
    )
    gpu_ids = steps.data_parallel_gpus(wanted.gpu_ids, device) if mode == "dp" else []
    if gpu_ids:
        device = torch.device("cuda", gpu_ids[0])
    if mode == "dp" and wanted.compile != "off":
        raise errors.UsageError(
            "--compile does not work with --mode dp, which replicates the model in each step."
        )
    if wanted.profile_steps and metrics.file_path(wanted.run_dir, environ) is None:
        raise errors.UsageError("--profile-steps requires --run-dir, the folder for the profile.")
    batches.batch_size(wanted, max(1, len(gpu_ids)) if mode == "dp" else place.world_size)
    files = outputs.open_outputs(wanted, environ, place)
    return Launch(
        wanted=wanted,
        place=place,
        mode=mode,
        device=device,
        gpu_ids=gpu_ids,
        files=files,
        is_saved=outputs.checkpoint_dir(wanted, environ) is not None,
        store=outputs.open_checkpoints(wanted, environ, place, files),
        stopper=stopping.read_stopper(environ, margin_seconds=wanted.stop_margin_seconds),
    )


def make(launch: Launch) -> tuple[Run, training.Training]:
    """Assemble a run within the process group; all ranks must call it."""
    wanted, place, device = launch.wanted, launch.place, launch.device
    precision = precisions.resolve(wanted.precision, device)
    _set_rules_of_torch(wanted, precision)
    # Data stays in host memory until the data path is chosen.
    data = datasets.load_on_all_ranks(
        wanted.dataset, datasets.read_options(wanted), place, torch.device("cpu")
    )
    fingerprint = data.fingerprint()
    if not ranks.alike(int(fingerprint, 16) >> 1):
        raise errors.DataError(
            f"The ranks have different data for {wanted.dataset}: on rank {place.rank}"
            f" ({socket.gethostname()}) its fingerprint is {fingerprint}. Stage the data set again"
            " on the nodes that differ."
        )
    plan = batches.make_plan(
        wanted,
        num_samples=len(data.train_samples),
        rank=place.rank,
        world_size=place.world_size,
        num_devices=launch.num_devices,
    )
    memory_format = _memory_format(wanted.memory_format, data)
    source = data_paths.make(wanted, data, plan, device, memory_format)

    # The same initial weights on every rank, also without DDP, which broadcasts those of rank 0.
    torch.manual_seed(wanted.seed)
    model = models.MODELS[wanted.model](data.train_samples.shape[1:], data.num_classes)
    model.to(device=device, memory_format=memory_format)
    training.seed_rank(wanted.seed, place.rank, 0)
    wrapped = steps.wrap(
        model,
        launch.mode,
        device,
        autocast=functools.partial(precisions.autocast, precision, device),
        gpu_ids=launch.gpu_ids,
        bucket_cap_mb=wanted.bucket_cap_mb,
    )
    moving = training.Training(
        place=place,
        device=device,
        model=model,
        wrapped=wrapped,
        compiled=steps.compiled(wrapped, wanted.compile),
        optimizer=optimizers.make(wanted, wrapped.parameters(), device),
        rules=steps.Rules(
            world_size=place.world_size,
            autocast=precisions.autocast(precision, device),
            scaler=precisions.grad_scaler(precision, device),
            label_smoothing=wanted.label_smoothing,
            max_gradient_norm=wanted.max_gradient_norm,
        ),
        epoch_meter=metrics.SpanMeter(device, source),
        window_meter=metrics.SpanMeter(device, source),
        progress=progress.Progress(),
    )
    profile_dir = launch.files.profile_dir()
    run = Run(
        launch=launch,
        plan=plan,
        schedule=_schedule(wanted, plan),
        goals=progress.Goals(
            target_accuracy=wanted.target_accuracy,
            patience=wanted.patience,
            early_stopping_patience=wanted.early_stopping_patience,
            min_delta=wanted.early_stopping_min_delta,
        ),
        source=source,
        settings=settings.read(
            wanted,
            precision=precision,
            batch_size=plan.global_batch_size,
            fingerprint=fingerprint,
        ),
        surroundings=outputs.surroundings(place, device, launch.mode),
        profile=(
            profiling.Profile(profile_dir, wanted.profile_steps)
            if wanted.profile_steps and profile_dir is not None
            else None
        ),
    )
    return run, moving


def _schedule(wanted: argparse.Namespace, plan: batches.Plan) -> schedules.Schedule:
    warmup_steps = wanted.warmup_steps
    if warmup_steps is None:
        warmup_steps = round(wanted.warmup_epochs * plan.steps_per_epoch)
    return schedules.Schedule(
        name=wanted.schedule,
        peak=schedules.scale(
            wanted.base_lr,
            wanted.lr_scaling,
            batch_size=plan.global_batch_size,
            base_batch_size=wanted.lr_base_batch_size,
        ),
        minimum=wanted.min_lr,
        warmup_steps=warmup_steps,
        num_steps=wanted.epochs * plan.steps_per_epoch,
        gamma=wanted.lr_gamma,
        fall_steps=wanted.lr_step_epochs * plan.steps_per_epoch,
    )


def _memory_format(name: str, data: datasets.Dataset) -> torch.memory_format:
    is_image = data.train_samples.dim() == 4
    if name == "channels_last" and not is_image:
        raise errors.UsageError(
            f"--memory-format channels_last requires images, and {data.name} has none."
        )
    # On CPUs too: oneDNN's convolutions took 15 to 40 % less time (torch 2.15, x86-64).
    wanted = name == "channels_last" or (name == "auto" and is_image)
    return torch.channels_last if wanted else torch.contiguous_format


def _set_rules_of_torch(wanted: argparse.Namespace, precision: str) -> None:
    precisions.set_fp32_rules(precision)
    torch.backends.cudnn.benchmark = not wanted.deterministic
    if wanted.deterministic:
        # cuBLAS reads it at its first use (PyTorch, notes on reproducibility).
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
