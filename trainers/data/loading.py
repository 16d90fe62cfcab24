"""How samples are read and reach the device: tensors that stay there, or a DataLoader."""

import argparse
import functools
import itertools
import math
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch
from torch.utils import _pytree
from torch.utils import data as torch_data

from trainers import distributed, errors
from trainers.data import batches, memory

# Largest fraction of free GPU memory that data may use.
DEVICE_FRACTION = 0.25
# Batches on the device are selected, augmented and normalized together, up to this size.
CHUNK_BYTES = 32 << 20
# Default for data in memory. Limits the memory of a forward pass; results do not depend on it.
EVAL_BATCH_SIZE = 1000


class Source:
    """The batches of training and evaluation, from data on the device or from a DataLoader."""

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
        self._args, self._plan = args, plan
        self._device, self._memory_format = device, memory_format
        #: Worker processes of a DataLoader on this rank.
        self.num_workers = 4 if args.num_workers is None else args.num_workers
        #: `device` or `loader`.
        self.name = _data_path(args, train, evaluation, device)
        size = args.eval_batch_size or plan.per_device_batch_size
        if args.eval_batch_size is None and isinstance(evaluation, memory.TensorData):
            size = EVAL_BATCH_SIZE
        if self.name == "device":
            train, evaluation = train.to(device), evaluation.to(device)
        self._reader = Reader(train, plan, args.seed)
        self._loader = self._make_loader(self._reader)
        self._eval_loader = self._make_loader(Reader(evaluation, plan, args.seed, size))
        self._batches: Iterator[Any] = iter(())

    def begin_epoch(self, epoch: int, first_step: int) -> None:
        """Prepare the steps of an epoch, starting at `first_step`."""
        self._reader.start[:] = torch.tensor([epoch, first_step])
        self._batches = self._copy(self._measure(self._loader))

    def micro_batches(self, step: int) -> Iterator[tuple[batches.MicroBatch, Any]]:
        """Yield this rank's forward passes of the next step, and their input for `losses`."""
        for part in self._plan.micro_batches(step):
            yield part, next(self._batches)

    def eval_batches(self) -> Iterator[Any]:
        """Yield this rank's evaluation batches; each sample is on exactly one rank."""
        return self._copy(self._eval_loader)

    def _make_loader(self, reader: "Reader") -> Iterable[Any]:
        if self.name == "device":
            reader.chunk_bytes = CHUNK_BYTES
            return reader
        return torch_data.DataLoader(
            reader,
            batch_size=None,  # the reader returns whole batches
            num_workers=self.num_workers,
            prefetch_factor=self._args.prefetch_factor if self.num_workers else None,
            persistent_workers=self.num_workers > 0,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=functools.partial(start_worker, os.getpid()),
            # A separate generator: the state of the default one is part of the checkpoint.
            generator=torch.Generator(),
        )

    def _measure(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield batches, and add the time of waiting for them to `wait_seconds`."""
        began = time.perf_counter()
        for batch in loader:
            if self.name == "loader":
                self.wait_seconds += time.perf_counter() - began
            yield batch
            began = time.perf_counter()

    def _copy(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield batches on the device; on a GPU the next one is copied on a stream of its own."""
        if self.name == "device":
            for samples, labels in loader:
                yield arrange(samples, self._memory_format), labels
            return
        if self._device.type != "cuda":
            yield from map(self._arrange, loader)
            return
        stream, ahead = torch.cuda.Stream(self._device), None
        for batch in itertools.chain(loader, [None]):
            current, reader = ahead, torch.cuda.current_stream(self._device)
            # Until the copy of `current` is complete.
            reader.wait_stream(stream)
            if batch is not None:
                with torch.cuda.stream(stream):
                    ahead = map_tensors(batch, lambda t: t.to(self._device, non_blocking=True))
            if current is not None:
                # The allocator must not reuse the memory before the reader has read it.
                map_tensors(current, lambda tensor, reader=reader: tensor.record_stream(reader))
                yield self._arrange(current)

    def _arrange(self, batch: Any) -> Any:
        return map_tensors(batch, lambda tensor: arrange(tensor, self._memory_format))


def _data_path(args: argparse.Namespace, train: Any, evaluation: Any, device: torch.device) -> str:
    parts = [part for part in (train, evaluation) if isinstance(part, memory.TensorData)]
    if args.data_path == "device" and len(parts) < 2:
        raise errors.UsageError(
            "--data-path device requires data in memory: use --data-path loader."
        )
    if args.data_path != "auto" or len(parts) < 2:
        return "device" if args.data_path == "device" else "loader"
    free_bytes = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else math.inf
    num_bytes = sum(part.samples.nbytes + part.labels.nbytes for part in parts)
    return "device" if num_bytes <= free_bytes * DEVICE_FRACTION else "loader"


def in_step(batches: Iterator[Any], *, is_sharded: bool) -> Iterator[tuple[Any, bool]]:
    """Yield evaluation batches and whether they count; with FSDP, as many on each rank."""
    batch = None
    while True:
        following = next(batches, None)
        has_more = torch.tensor(int(following is not None))
        if is_sharded:
            distributed.all_reduce(has_more, "max")
        if not has_more.item():
            return
        batch = batch if following is None else following
        if batch is None:
            raise errors.UsageError("--mode fsdp requires an evaluation sample for each rank.")
        yield batch, following is not None


def arrange(inputs: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """Convert images [B, C, H, W] to the memory format of the model's convolutions."""
    is_image = inputs.dim() == 4 and inputs.is_floating_point()
    return inputs.contiguous(memory_format=memory_format) if is_image else inputs


def map_tensors(batch: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """Apply a function to each tensor of nested tuples, lists and dictionaries."""
    return _pytree.tree_map_only(torch.Tensor, function, batch)


class Reader(torch_data.IterableDataset[Any]):
    """Whole batches of this rank: of training from a step of an epoch, or of evaluation."""

    def __init__(
        self, dataset: Any, plan: batches.Plan, seed: int, eval_batch_size: int = 0
    ) -> None:
        #: Epoch and first step, which workers read when an epoch begins.
        self.start = torch.zeros(2, dtype=torch.int64).share_memory_()
        self._dataset, self._num_samples = dataset, batches.num_samples_of(dataset)
        #: 0 for training.
        self._eval_batch_size = eval_batch_size
        self._plan, self._seed = plan, seed
        self._collate = getattr(dataset, "collate_fn", torch_data.default_collate)
        #: Of a DataLoader; one worker is the process itself.
        self.worker, self.num_workers = 0, 1
        #: Batches of data in memory are selected and normalized together up to this size.
        self.chunk_bytes = 0

    def __iter__(self) -> Iterator[Any]:
        epoch, first_step = self.start.tolist()
        # A DataLoader takes one batch from each worker in turn.
        positions = self.positions(first_step)
        positions = itertools.islice(positions, self.worker, None, self.num_workers)
        if isinstance(self._dataset, torch_data.IterableDataset):
            return self._read_stream(epoch, positions)
        # --steps-per-epoch may use a different part of the data set in each epoch.
        order = torch.arange(self._num_samples or 0)
        if not self._eval_batch_size:
            order = batches.permutation(self._seed, epoch, len(order))
        if isinstance(self._dataset, memory.TensorData):
            return self._read_tensors(epoch, order, positions)
        return (self._read_samples(epoch, order[part].tolist()) for part in positions)

    def positions(self, first_step: int = 0) -> Iterator[slice]:
        """Yield the positions of each batch; without end for a stream of unknown length."""
        if not self._eval_batch_size:
            for step in range(first_step, self._plan.steps_per_epoch):
                yield from (part.positions for part in self._plan.micro_batches(step))
            return
        size = math.inf if self._num_samples is None else self._num_samples
        first, stride = self._plan.rank, self._plan.world_size
        while first < size:
            stop = first + self._eval_batch_size * stride
            yield slice(first, min(stop, size), stride)
            first = stop

    def _read_tensors(
        self, epoch: int, order: torch.Tensor, positions: Iterator[slice]
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        order, draws = order.to(self._dataset.labels.device), self._dataset.draws(self._seed, epoch)
        batch_size = self._eval_batch_size or self._plan.per_device_batch_size
        batch_bytes = 4 * self._dataset.samples[0].numel() * batch_size
        while chunk := list(itertools.islice(positions, max(1, self.chunk_bytes // batch_bytes))):
            parts = [order[part] for part in chunk]
            tensors, sizes = self._dataset.batch(torch.cat(parts), draws), list(map(len, parts))
            yield from zip(*(tensor.split(sizes) for tensor in tensors), strict=True)

    def _read_samples(self, epoch: int, indices: list[int]) -> Any:
        """Read samples, whose random transforms depend only on seed, epoch and index."""
        samples = []
        with _RandomStates():
            for index in indices:
                _seed_all(self._seed, epoch, index)
                samples.append(self._dataset[index])
        return self._collate(samples)

    def _read_stream(self, epoch: int, positions: Iterator[slice]) -> Iterator[Any]:
        """Read the stream from its beginning, and keep the samples of this worker's batches."""
        ranges = (range(*part.indices(part.stop)) for part in positions)
        parts, all_parts = itertools.tee(ranges)
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        states = _RandomStates()
        with states:
            _seed_all(self._seed, epoch, -1)
            samples = iter(self._select(itertools.chain.from_iterable(all_parts)))
        for part in parts:
            with states:
                batch = list(itertools.islice(samples, len(part)))
            if len(batch) < len(part) and not self._eval_batch_size:
                raise errors.DataError(
                    f"The stream of training data ended after {part.start + len(batch)} samples:"
                    " correct its num_samples, or set a smaller --steps-per-epoch."
                )
            if not batch:
                return
            yield self._collate(batch)

    def _select(self, positions: Iterator[int]) -> Iterator[Any]:
        if hasattr(self._dataset, "samples_at"):
            yield from self._dataset.samples_at(positions)
            return
        wanted = next(positions, None)
        for position, sample in enumerate(self._dataset):
            if wanted is None:
                return
            if position == wanted:
                yield sample
                wanted = next(positions, None)


class _RandomStates:
    """Random generators of their own for the body of a `with`; can be entered repeatedly."""

    _other: tuple[Any, Any, torch.Tensor] | None = None

    def _exchange(self, *error: object) -> None:
        states = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
        if self._other is not None:
            random.setstate(self._other[0])
            numpy.random.set_state(self._other[1])
            torch.set_rng_state(self._other[2])
        self._other = states

    __enter__ = __exit__ = _exchange


def _seed_all(seed: int, epoch: int, index: int) -> None:
    number = batches.seed_of("sample", seed, epoch, index)
    random.seed(number)
    numpy.random.seed(number % 2**32)
    # torch.manual_seed would also queue a seed for CUDA, for each sample.
    torch.default_generator.manual_seed(number)


def start_worker(trainer: int, worker: int) -> None:
    """Prepare a DataLoader worker; `trainer` is the process that started it.

    Of signals to the whole process group only the trainer takes notice: it completes the step,
    which needs the worker. SIGTERM from the trainer ends the worker when Python exits.
    """
    info = torch_data.get_worker_info()
    info.dataset.worker, info.dataset.num_workers = worker, info.num_workers
    # get_worker_info of a stream returns None: it would divide its samples a second time.
    torch_data._utils.worker._worker_info = None
    if not hasattr(signal, "sigwaitinfo"):
        return  # macOS
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
    # Threads that start later inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def wait() -> None:
        while True:
            received = signal.sigwaitinfo(numbers)
            if received.si_signo == signal.SIGTERM and received.si_pid == trainer:
                os._exit(0)

    threading.Thread(target=wait, name="signals", daemon=True).start()
