"""How samples reach the device: from tensors on the device, or from a DataLoader.

Data in memory (TensorData) stays on the device if it fits. Other data sets, map-style or streams
(IterableDataset), are read by a DataLoader in worker processes. In both cases step s of an epoch
has the same samples for any number of ranks and workers, also after a resume.
"""

import argparse
import dataclasses
import functools
import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils import data as torch_data

from trainers import distributed, errors
from trainers.data import batches, memory, workers

# Largest fraction of free GPU memory that data may use; the rest is for training.
DEVICE_FRACTION = 0.25
# Samples of several steps are selected, augmented and normalized together, up to this size.
CHUNK_BYTES = 32 << 20
# Default for data in memory. Limits the memory of a forward pass; results do not depend on it.
EVAL_BATCH_SIZE = 1000


class Source:
    """The batches of training and evaluation, on the device."""

    #: `device` or `loader`.
    name: str
    #: Host time spent waiting for training data since the process started.
    wait_seconds = 0.0

    def __init__(
        self,
        args: argparse.Namespace,
        train: Any,
        evaluation: Any,
        plan: batches.Plan,
        device: torch.device,
        memory_format: torch.memory_format,
    ) -> None:
        self._args = args
        self._train, self._eval = train, evaluation
        self._plan = plan
        self._device = device
        self._memory_format = memory_format
        self._eval_batch_size = args.eval_batch_size or (
            EVAL_BATCH_SIZE
            if isinstance(evaluation, memory.TensorData)
            else plan.per_device_batch_size
        )
        self._batches: Iterator[Any] = iter(())

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        """Prepare the steps of an epoch, starting at `first_step`."""
        raise NotImplementedError

    def advice(self) -> str:
        """Return what shortens the time spent waiting for training data."""
        args, count = self._args, num_workers(self._args)
        is_stream = isinstance(self._train, torch_data.IterableDataset)
        if count and is_stream and not hasattr(self._train, "samples_at"):
            return (
                "make the samples of the stream cheaper, or give it a method samples_at. More"
                " workers do not help, because each of them reads the whole stream"
            )
        advice = f"increase --num-workers (now {count}) and the number of CPUs"
        if count:
            advice += f", or --prefetch-factor (now {args.prefetch_factor})"
        if isinstance(self._train, memory.TensorData):
            advice = f"use --data-path device, or {advice}"
        return advice

    def micro_batches(self, step: int) -> Iterator[tuple[batches.MicroBatch, Any]]:
        """Yield this rank's forward passes of a step and their input for the task's `losses`.

        Steps are processed in order.
        """
        for part in self._plan.micro_batches(step):
            yield part, next(self._batches)

    def eval_batches(self) -> Iterator[Any]:
        """Yield this rank's evaluation batches; each sample is on exactly one rank."""
        raise NotImplementedError


def num_workers(args: argparse.Namespace) -> int:
    """Return the number of workers of a DataLoader per rank."""
    return 4 if args.num_workers is None else int(args.num_workers)


def make_source(
    args: argparse.Namespace,
    train: torch_data.Dataset[Any],
    evaluation: torch_data.Dataset[Any],
    plan: batches.Plan,
    device: torch.device,
    memory_format: torch.memory_format,
) -> Source:
    """Return the source for `--data-path`; the data is in host memory."""
    kind: type[Source] = LoaderSource
    if isinstance(train, memory.TensorData) and isinstance(evaluation, memory.TensorData):
        free_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf
        fits = train.num_bytes + evaluation.num_bytes <= free_bytes * DEVICE_FRACTION
        if args.data_path == "device" or (args.data_path == "auto" and fits):
            kind = DeviceSource
    elif args.data_path == "device":
        raise errors.UsageError(
            "--data-path device requires a data set in memory (TensorData), and this one is read"
            " sample by sample: use --data-path loader."
        )
    return kind(args, train, evaluation, plan, device, memory_format)


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


class DeviceSource(Source):
    """Holds all data on the device: no workers, no copies, no waiting."""

    name = "device"

    def __init__(self, args: argparse.Namespace, train: Any, *others: Any) -> None:
        super().__init__(args, train, *others)
        self._train, self._eval = train.to(self._device), self._eval.to(self._device)
        sample_bytes = 4 * train.samples[0].numel()
        rank_batch_size = max(1, self._plan.global_batch_size // self._plan.world_size)
        self._chunk_steps = max(1, CHUNK_BYTES // (sample_bytes * rank_batch_size))

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        order = batches.permutation(self._args.seed, epoch, len(self._train)).to(self._device)
        first_steps = range(first_step, self._plan.steps_per_epoch, self._chunk_steps)
        chunks = (self._chunk(order, epoch, first) for first in first_steps)
        self._batches = itertools.chain.from_iterable(chunks)

    def eval_batches(self) -> Iterator[Any]:
        part = slice(self._plan.rank, None, self._plan.world_size)
        samples = self._eval.samples[part].split(self._eval_batch_size)
        labels = self._eval.labels[part].split(self._eval_batch_size)
        for inputs, targets in zip(samples, labels, strict=True):
            if len(targets):
                yield arrange(self._eval.normalize(inputs), self._memory_format), targets

    def _chunk(self, order: torch.Tensor, epoch: int, first_step: int) -> Iterator[Any]:
        """Prepare the samples of several steps, and return their forward passes as views."""
        last_step = min(first_step + self._chunk_steps, self._plan.steps_per_epoch)
        positions = [
            part.positions
            for step in range(first_step, last_step)
            for part in self._plan.micro_batches(step)
        ]
        indices = torch.cat([order[part] for part in positions])
        samples, labels = self._train[indices]
        inputs = self._train.prepare(samples, indices, seed=self._args.seed, epoch=epoch)
        sizes = [part.stop - part.start for part in positions]
        return zip(
            arrange(inputs, self._memory_format).split(sizes), labels.split(sizes), strict=True
        )


class LoaderSource(Source):
    """Reads samples in worker processes and copies them to the device, one batch ahead."""

    name = "loader"

    def __init__(self, args: argparse.Namespace, train: Any, evaluation: Any, *others: Any) -> None:
        super().__init__(args, train, evaluation, *others)
        self._requests = workers.TrainRequests(self._plan, args.seed, num_samples_of(train))
        eval_requests = workers.EvalRequests(
            num_samples_of(evaluation), self._plan, self._eval_batch_size
        )
        self._loader = self._make_loader(train, self._requests)
        self._eval_loader = self._make_loader(evaluation, eval_requests)
        self._train, self._eval = (on_device(each, self._device) for each in (train, evaluation))

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        self._requests.epoch = epoch
        self._requests.first_step = first_step
        self._batches = self._ahead(self._waiting(self._loader), self._train)

    def eval_batches(self) -> Iterator[Any]:
        return self._ahead(self._eval_loader, self._eval)

    def _make_loader(
        self,
        dataset: torch_data.Dataset[Any],
        requests: workers.TrainRequests | workers.EvalRequests,
    ) -> torch_data.DataLoader[Any]:
        args, count = self._args, num_workers(self._args)
        is_stream = isinstance(dataset, torch_data.IterableDataset)
        return torch_data.DataLoader(
            workers.StreamBatches(dataset, requests, args.seed)
            if is_stream
            else workers.Batches(dataset, args.seed),
            sampler=None if is_stream else requests,
            batch_size=None,  # a request is a whole batch
            num_workers=count,
            prefetch_factor=args.prefetch_factor if count else None,
            # The workers of a stream learn the epoch and the first step when they start.
            persistent_workers=count > 0 and not is_stream,
            pin_memory=self._device.type == "cuda",
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
        if self._device.type != "cuda":
            for batch in loader:
                yield self._finish(batch, dataset)
            return
        stream = torch.cuda.Stream(self._device)
        ahead: tuple[Any, torch.cuda.Event] | None = None
        for batch in itertools.chain(loader, [None]):
            current = ahead
            if batch is not None:
                with torch.cuda.stream(stream):
                    copied = map_tensors(
                        batch, lambda tensor: tensor.to(self._device, non_blocking=True)
                    )
                    ahead = copied, stream.record_event()
            if current is not None:
                reader = torch.cuda.current_stream(self._device)
                reader.wait_event(current[1])
                # The allocator must not reuse the memory before the reader has read it.
                map_tensors(current[0], lambda tensor, reader=reader: tensor.record_stream(reader))
                yield self._finish(current[0], dataset)

    def _finish(self, batch: Any, dataset: Any) -> Any:
        """Augment and normalize data in memory; arrange images."""
        if isinstance(dataset, memory.TensorData):
            samples, labels, indices, epoch = batch
            samples = dataset.prepare(samples, indices, seed=self._args.seed, epoch=int(epoch))
            batch = samples, labels
        return map_tensors(batch, lambda tensor: arrange(tensor, self._memory_format))


def on_device(dataset: Any, device: torch.device) -> Any:
    """Return data in memory with its statistics on the device; other data sets unchanged."""
    if not isinstance(dataset, memory.TensorData):
        return dataset
    return dataclasses.replace(dataset, mean=dataset.mean.to(device), std=dataset.std.to(device))


def arrange(inputs: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """Convert images [B, C, H, W] to the memory format of the model's convolutions."""
    is_image = inputs.dim() == 4 and inputs.is_floating_point()
    return inputs.contiguous(memory_format=memory_format) if is_image else inputs


def map_tensors(batch: Any, function: Callable[[torch.Tensor], Any]) -> Any:
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
