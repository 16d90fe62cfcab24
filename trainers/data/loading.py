"""How the samples of a step reach the device: from device memory, or from DataLoader workers."""

import argparse
import dataclasses
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Protocol

import torch
from torch.utils import data as torch_data

from trainers import batches, datasets, steps

# Largest share of free GPU memory that data may use; the rest is for training.
DEVICE_SHARE = 0.25


class DataPath(Protocol):
    """Provides the forward passes of each step."""

    #: The data set, for evaluation.
    data: datasets.Dataset
    #: Host time spent waiting for data since the process started.
    wait_seconds: float
    #: How to reduce it.
    advice: str

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        """Prepare the steps of an epoch, starting at `first_step`."""

    def micro_batches(self, step: int) -> Iterator[steps.Micro]:
        """Yield this rank's forward passes of a step; steps are processed in order."""


def make(
    arguments: argparse.Namespace,
    data: datasets.Dataset,
    plan: batches.Plan,
    device: torch.device,
    memory_format: torch.memory_format,
) -> DataPath:
    """Choose the data path; `data` is in host memory."""
    if arguments.data_path == "device" or (arguments.data_path == "auto" and fits(data, device)):
        return DevicePath(data.to(device), plan, arguments.seed, memory_format)
    return LoaderPath(
        data,
        plan,
        arguments.seed,
        memory_format,
        device=device,
        num_workers=arguments.num_workers,
        prefetch_factor=arguments.prefetch_factor,
    )


def fits(data: datasets.Dataset, device: torch.device) -> bool:
    """Return whether the data set fits on the device."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    parts = (data.train_samples, data.train_labels, data.test_samples, data.test_labels)
    return sum(part.nbytes for part in parts) <= free * DEVICE_SHARE


class DevicePath:
    """Keeps the whole data set on the device: no workers, no copies, no waiting."""

    def __init__(
        self,
        data: datasets.Dataset,
        plan: batches.Plan,
        seed: int,
        memory_format: torch.memory_format,
    ) -> None:
        self.data = data
        self.wait_seconds = 0.0
        self.advice = "no waiting with --data-path device"
        self._plan = plan
        self._seed = seed
        self._memory_format = memory_format
        self._epoch = 0
        self._order = torch.empty(0, dtype=torch.int64)

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        """Copy the order of the epoch to the device."""
        self._epoch = epoch
        order = datasets.permutation(self._seed, epoch, self._plan.num_samples)
        self._order = order.to(self.data.train_labels.device)

    def micro_batches(self, step: int) -> Iterator[steps.Micro]:
        """Select samples on the device."""
        parts = self._plan.micro_batches(step)
        for number, part in enumerate(parts, start=1):
            samples, labels = self.data.train_batch(
                self._order[part.places], seed=self._seed, epoch=self._epoch
            )
            yield steps.Micro(
                samples=arrange(samples, self._memory_format),
                labels=labels,
                counted=part.counted,
                last=number == len(parts),
            )


class LoaderPath:
    """Selects samples in worker processes; augmentation runs on the device."""

    def __init__(
        self,
        data: datasets.Dataset,
        plan: batches.Plan,
        seed: int,
        memory_format: torch.memory_format,
        *,
        device: torch.device,
        num_workers: int,
        prefetch_factor: int,
    ) -> None:
        # Augmentation and normalisation need only these two small tensors on the device.
        self.data = dataclasses.replace(data, mean=data.mean.to(device), std=data.std.to(device))
        self.wait_seconds = 0.0
        self.advice = (
            f"increase --num-workers (now {num_workers}) and the number of CPUs, increase"
            f" --prefetch-factor (now {prefetch_factor}), or use --data-path device."
        )
        self._plan = plan
        self._seed = seed
        self._memory_format = memory_format
        self._device = device
        self._places = _Places(seed, plan)
        self._loader: torch_data.DataLoader[tuple[torch.Tensor, ...]] = torch_data.DataLoader(
            _Samples(data),
            sampler=self._places,
            batch_size=None,  # the sampler returns whole batches
            num_workers=num_workers,
            prefetch_factor=prefetch_factor if num_workers else None,
            persistent_workers=num_workers > 0,
            pin_memory=device.type == "cuda",
            worker_init_fn=functools.partial(_heed_the_trainer_only, os.getpid()),
            # A separate generator: the state of the default one is part of the checkpoint.
            generator=torch.Generator(),
        )
        self._batches = iter(())

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        """Start the workers on the epoch."""
        self._places.epoch = epoch
        self._places.first_step = first_step
        begun = time.perf_counter()
        self._batches = iter(self._loader)
        self.wait_seconds += time.perf_counter() - begun

    def micro_batches(self, step: int) -> Iterator[steps.Micro]:
        """Wait for the workers and copy their samples to the device."""
        parts = self._plan.micro_batches(step)
        for number, part in enumerate(parts, start=1):
            begun = time.perf_counter()
            samples, labels, indices = next(self._batches)
            self.wait_seconds += time.perf_counter() - begun
            samples = self.data.augment(
                samples.to(self._device, non_blocking=True),
                indices.to(self._device, non_blocking=True),
                seed=self._seed,
                epoch=self._places.epoch,
            )
            yield steps.Micro(
                samples=arrange(self.data.normalise(samples), self._memory_format),
                labels=labels.to(self._device, non_blocking=True),
                counted=part.counted,
                last=number == len(parts),
            )


def arrange(samples: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """Convert images to the memory format of the model's convolutions."""
    return samples.contiguous(memory_format=memory_format) if samples.dim() == 4 else samples


def _heed_the_trainer_only(trainer: int, worker: int) -> None:
    """Make a worker ignore signals that the whole process group receives.

    The trainer records the signal and completes the step, which needs the worker. SIGTERM from the
    trainer still ends the worker: multiprocessing sends it when Python exits.
    """
    if not hasattr(signal, "sigwaitinfo"):
        return  # macOS
    numbers = (signal.SIGTERM, signal.SIGUSR1)
    # Threads that start later inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def wait() -> None:
        while True:
            came = signal.sigwaitinfo(numbers)
            if came.si_signo == signal.SIGTERM and came.si_pid == trainer:
                os._exit(0)

    threading.Thread(target=wait, name="signals", daemon=True).start()


class _Samples(torch_data.Dataset[tuple[torch.Tensor, ...]]):
    """Raw training samples, selected by a tensor of indices."""

    def __init__(self, data: datasets.Dataset) -> None:
        self._samples = data.train_samples
        self._labels = data.train_labels

    def __getitem__(self, indices: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self._samples[indices], self._labels[indices], indices


class _Places(torch_data.Sampler[torch.Tensor]):
    """The indices of this rank's forward passes, starting at a step of an epoch."""

    def __init__(self, seed: int, plan: batches.Plan) -> None:
        self.epoch = 0
        self.first_step = 0
        self._seed = seed
        self._plan = plan

    def __iter__(self) -> Iterator[torch.Tensor]:
        order = datasets.permutation(self._seed, self.epoch, self._plan.num_samples)
        for step in range(self.first_step, self._plan.steps_per_epoch):
            for part in self._plan.micro_batches(step):
                yield order[part.places]
