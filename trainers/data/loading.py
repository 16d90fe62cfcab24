"""How samples reach the device: from tensors on the device, or from a DataLoader.

Data in memory (TensorData) stays on the device if it fits. Other data sets, map-style or streams
(IterableDataset), are read by a DataLoader in worker processes. In both cases step s of an epoch
has the same samples for any number of ranks and workers, also after a resume.
"""

import argparse
import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
from torch.utils import data as torch_data

from trainers import distributed, errors
from trainers.data import batches, memory, order, workers

# Largest fraction of free GPU memory that data may use; the rest is for training.
DEVICE_FRACTION = 0.25
# Samples of several steps are selected, augmented and normalized together, up to this size.
CHUNK_BYTES = 32 << 20
# Default for data in memory. Limits the memory of a forward pass; results do not depend on it.
EVAL_BATCH_SIZE = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Micro:
    """Input of one forward pass on this rank."""

    #: What the task's `losses` receives, on the device.
    batch: Any
    #: Number of samples that count; 0 if the batch is a placeholder (see batches.MicroBatch).
    num_samples: int
    #: Whether it is the last pass of the step.
    is_last: bool


class Source(Protocol):
    """Provides the batches of training and evaluation."""

    #: `device` or `loader`.
    name: str
    #: Host time spent waiting for training data since the process started.
    wait_seconds: float

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        """Prepare the steps of an epoch, starting at `first_step`."""

    def micro_batches(self, step: int) -> Iterator[Micro]:
        """Yield this rank's forward passes of a step; steps are processed in order."""

    def eval_batches(self) -> Iterator[Any]:
        """Yield this rank's evaluation batches; each sample is on exactly one rank."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadingOptions:
    """How data is read."""

    #: Device of the model.
    device: torch.device
    #: Memory format of 4-dimensional inputs.
    memory_format: torch.memory_format
    #: Seed of the order and of augmentation.
    seed: int
    #: Worker processes per rank of a DataLoader.
    num_workers: int
    #: Batches that each worker prefetches.
    prefetch_factor: int
    #: Samples per evaluation batch and rank; None: 1000 in memory, else the training batch.
    eval_batch_size: int | None


def read_options(
    args: argparse.Namespace, device: torch.device, memory_format: torch.memory_format
) -> LoadingOptions:
    """Return the options of the command line."""
    return LoadingOptions(
        device=device,
        memory_format=memory_format,
        seed=args.seed,
        num_workers=num_workers(args),
        prefetch_factor=args.prefetch_factor,
        eval_batch_size=args.eval_batch_size,
    )


def num_workers(args: argparse.Namespace) -> int:
    """Return the number of workers of a DataLoader per rank."""
    return 4 if args.num_workers is None else int(args.num_workers)


def make_source(
    choice: str,
    train: torch_data.Dataset[Any],
    evaluation: torch_data.Dataset[Any],
    plan: batches.Plan,
    options: LoadingOptions,
) -> Source:
    """Return the source; `choice` is `auto`, `device` or `loader`. The data is in host memory."""
    if isinstance(train, memory.TensorData) and isinstance(evaluation, memory.TensorData):
        size = train.num_bytes + evaluation.num_bytes
        if choice == "device" or (choice == "auto" and fits(size, options.device)):
            return DeviceSource(train, evaluation, plan, options)
    elif choice == "device":
        raise errors.UsageError(
            "--data-path device requires a data set in memory (TensorData), and this one is read"
            " sample by sample: use --data-path loader."
        )
    return LoaderSource(train, evaluation, plan, options)


def in_step(batches: Iterator[Any], *, is_sharded: bool) -> Iterator[tuple[Any, bool]]:
    """Yield evaluation batches and whether they count.

    With a sharded model (FSDP) each forward pass is a collective: a rank without further batches
    repeats its last one, which does not count.
    """
    batch = None
    while True:
        following = next(batches, None)
        if is_sharded:
            has_more = torch.tensor(int(following is not None))
            if not distributed.all_reduce(has_more, "max").item():
                return
        elif following is None:
            return
        batch = batch if following is None else following
        if batch is None:
            raise errors.UsageError(
                "--mode fsdp requires at least one evaluation sample for each rank."
            )
        yield batch, following is not None


def num_samples_of(dataset: Any) -> int | None:
    """Return the number of samples of an epoch; None for a stream without `num_samples`."""
    if isinstance(dataset, torch_data.IterableDataset):
        return getattr(dataset, "num_samples", None)
    return len(dataset)


def fits(num_bytes: int, device: torch.device) -> bool:
    """Return whether data of this size fits on the device."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return num_bytes <= free * DEVICE_FRACTION


class DeviceSource:
    """Holds all data on the device: no workers, no copies, no waiting."""

    name = "device"
    wait_seconds = 0.0

    def __init__(
        self,
        train: memory.TensorData,
        evaluation: memory.TensorData,
        plan: batches.Plan,
        options: LoadingOptions,
    ) -> None:
        self._train = train.to(options.device)
        self._eval = evaluation.to(options.device)
        self._plan = plan
        self._options = options
        self._epoch = 0
        self._order = torch.empty(0, dtype=torch.int64)
        sample_bytes = 4 * self._train.samples[0].numel()
        self._chunk_steps = max(
            1, CHUNK_BYTES // (sample_bytes * max(1, plan.global_batch_size // plan.world_size))
        )
        self._steps: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        """Copy the order of the epoch to the device."""
        self._epoch = epoch
        self._steps = {}
        permutation = order.permutation(self._options.seed, epoch, len(self._train))
        self._order = permutation.to(self._options.device)

    def micro_batches(self, step: int) -> Iterator[Micro]:
        """Yield views of a chunk of prepared samples."""
        if step not in self._steps:
            self._prepare_chunk(step)
        parts = self._plan.micro_batches(step)
        for number, (part, batch) in enumerate(
            zip(parts, self._steps.pop(step), strict=True), start=1
        ):
            yield Micro(batch=batch, num_samples=part.num_samples, is_last=number == len(parts))

    def eval_batches(self) -> Iterator[Any]:
        """Yield every world_size-th sample."""
        samples = self._eval.samples[self._plan.rank :: self._plan.world_size]
        labels = self._eval.labels[self._plan.rank :: self._plan.world_size]
        size = self._options.eval_batch_size or EVAL_BATCH_SIZE
        for inputs, targets in zip(samples.split(size), labels.split(size), strict=True):
            if len(targets):
                yield self._arrange(self._eval.normalize(inputs)), targets

    def _prepare_chunk(self, first_step: int) -> None:
        last_step = min(first_step + self._chunk_steps, self._plan.steps_per_epoch)
        parts = {step: self._plan.micro_batches(step) for step in range(first_step, last_step)}
        indices = torch.cat(
            [self._order[part.positions] for step in parts.values() for part in step]
        )
        inputs = self._arrange(
            self._train.prepare(
                self._train.samples[indices],
                indices,
                seed=self._options.seed,
                epoch=self._epoch,
            )
        )
        labels = self._train.labels[indices]
        sizes = [
            part.positions.stop - part.positions.start for step in parts.values() for part in step
        ]
        pairs = iter(zip(inputs.split(sizes), labels.split(sizes), strict=True))
        self._steps = {
            step: list(itertools.islice(pairs, len(step_parts)))
            for step, step_parts in parts.items()
        }

    def _arrange(self, inputs: torch.Tensor) -> torch.Tensor:
        return arrange(inputs, self._options.memory_format)


class LoaderSource:
    """Reads samples in worker processes and copies them to the device, one batch ahead."""

    name = "loader"

    def __init__(
        self,
        train: torch_data.Dataset[Any],
        evaluation: torch_data.Dataset[Any],
        plan: batches.Plan,
        options: LoadingOptions,
    ) -> None:
        self.wait_seconds = 0.0
        self._train, self._eval = on_device(train, options), on_device(evaluation, options)
        self._plan = plan
        self._options = options
        self._requests = workers.TrainRequests(plan, options.seed, num_samples_of(train))
        self._loader = self._make_loader(train, self._requests, is_finite=True)
        size = options.eval_batch_size or (
            EVAL_BATCH_SIZE
            if isinstance(evaluation, memory.TensorData)
            else plan.per_device_batch_size
        )
        num_samples = num_samples_of(evaluation)
        self._eval_loader = self._make_loader(
            evaluation,
            workers.EvalRequests(num_samples, plan, size),
            is_finite=num_samples is not None,
        )
        self._batches: Iterator[Any] = iter(())

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        """Start the workers on the epoch."""
        self._requests.epoch = epoch
        self._requests.first_step = first_step
        self._batches = self._ahead(self._waiting(self._loader), self._train)

    def micro_batches(self, step: int) -> Iterator[Micro]:
        """Wait for the workers."""
        parts = self._plan.micro_batches(step)
        for number, part in enumerate(parts, start=1):
            yield Micro(
                batch=next(self._batches),
                num_samples=part.num_samples,
                is_last=number == len(parts),
            )

    def eval_batches(self) -> Iterator[Any]:
        """Read the evaluation data in worker processes."""
        yield from self._ahead(self._eval_loader, self._eval)

    def _make_loader(
        self,
        dataset: torch_data.Dataset[Any],
        requests: workers.TrainRequests | workers.EvalRequests,
        *,
        is_finite: bool,
    ) -> torch_data.DataLoader[Any]:
        options = self._options
        is_stream = isinstance(dataset, torch_data.IterableDataset)
        return torch_data.DataLoader(
            workers.StreamBatches(dataset, requests, options.seed, is_finite)
            if is_stream
            else workers.Batches(dataset, options.seed),
            sampler=None if is_stream else requests,
            batch_size=None,  # a request is a whole batch
            num_workers=options.num_workers,
            prefetch_factor=options.prefetch_factor if options.num_workers else None,
            # The workers of a stream learn the epoch and the first step when they start.
            persistent_workers=options.num_workers > 0 and not is_stream,
            pin_memory=options.device.type == "cuda",
            worker_init_fn=functools.partial(workers.ignore_signals_of_others, os.getpid()),
            # A separate generator: the state of the default one is part of the checkpoint.
            generator=torch.Generator(),
        )

    def _waiting(self, loader: Iterable[Any]) -> Iterator[Any]:
        began = time.perf_counter()
        iterator = iter(loader)
        while True:
            batch = next(iterator, None)
            self.wait_seconds += time.perf_counter() - began
            if batch is None:
                return
            yield batch
            began = time.perf_counter()

    def _ahead(self, loader: Iterable[Any], dataset: Any) -> Iterator[Any]:
        """Yield batches on the device; on a GPU the next one is copied on a stream of its own."""
        device = self._options.device
        if device.type != "cuda":
            for batch in loader:
                yield self._finish(batch, dataset)
            return
        stream = torch.cuda.Stream(device)
        ahead: tuple[Any, torch.cuda.Event] | None = None
        for batch in itertools.chain(loader, [None]):
            current = ahead
            if batch is not None:
                with torch.cuda.stream(stream):
                    copied = to_device(batch, device)
                    ahead = copied, stream.record_event()
            if current is not None:
                torch.cuda.current_stream(device).wait_event(current[1])
                # The allocator must not reuse the memory before the current stream has read it.
                for tensor in tensors(current[0]):
                    tensor.record_stream(torch.cuda.current_stream(device))
                yield self._finish(current[0], dataset)

    def _finish(self, batch: Any, dataset: Any) -> Any:
        """Augment and normalize data in memory; arrange images."""
        if isinstance(dataset, memory.TensorData):
            samples, labels, indices, epoch = batch
            samples = dataset.prepare(samples, indices, seed=self._options.seed, epoch=int(epoch))
            batch = samples, labels
        return map_tensors(batch, lambda tensor: arrange(tensor, self._options.memory_format))


def on_device(dataset: Any, options: LoadingOptions) -> Any:
    """Return data in memory with its statistics on the device; other data sets unchanged."""
    if not isinstance(dataset, memory.TensorData):
        return dataset
    mean, std = dataset.mean.to(options.device), dataset.std.to(options.device)
    return dataclasses.replace(dataset, mean=mean, std=std)


def arrange(inputs: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """Convert images [B, C, H, W] to the memory format of the model's convolutions."""
    is_image = inputs.dim() == 4 and inputs.is_floating_point()
    return inputs.contiguous(memory_format=memory_format) if is_image else inputs


def map_tensors(batch: Any, function: Any) -> Any:
    """Apply a function to each tensor of nested tuples, lists and dictionaries."""
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, dict):
        return {key: map_tensors(value, function) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, function) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_tensors(value, function) for value in batch)
    return batch


def tensors(batch: Any) -> list[torch.Tensor]:
    """Return the tensors of a batch."""
    result: list[torch.Tensor] = []
    map_tensors(batch, result.append)
    return result


def to_device(batch: Any, device: torch.device) -> Any:
    """Copy the tensors of a batch to the device, without waiting."""
    return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))
