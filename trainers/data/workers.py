"""What DataLoader workers do: batches of map-style data sets and of streams.

Step s of an epoch has the same samples for any number of ranks and workers, also after a resume.
"""

import hashlib
import itertools
import os
import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch.utils import data as torch_data

from trainers import errors
from trainers.data import batches, memory

#: Indices of a batch in the data set, int64 [B], and the epoch.
Request = tuple[torch.Tensor, int]


class TrainRequests(torch_data.Sampler[Request]):
    """This rank's forward passes, starting at a step of an epoch."""

    is_finite = True
    purpose = "training"

    def __init__(self, plan: batches.Plan, seed: int, num_samples: int | None) -> None:
        self.epoch = 0
        self.first_step = 0
        self._plan = plan
        self._seed = seed
        # Of the data set, of which --steps-per-epoch may use a different part in each epoch.
        self._num_samples = num_samples or 0

    def __iter__(self) -> Iterator[Request]:
        permutation = batches.permutation(self._seed, self.epoch, self._num_samples)
        for part in self.positions():
            yield permutation[part], self.epoch

    def positions(self) -> Iterator[slice]:
        """Yield the positions of each forward pass in the order of the epoch."""
        for step in range(self.first_step, self._plan.steps_per_epoch):
            for part in self._plan.micro_batches(step):
                yield part.positions


class EvalRequests(torch_data.Sampler[Request]):
    """Every world_size-th sample, without padding."""

    epoch = 0
    purpose = "evaluation"

    def __init__(self, num_samples: int | None, plan: batches.Plan, size: int) -> None:
        self.is_finite = num_samples is not None
        self._num_samples = num_samples
        self._plan = plan
        self._size = size

    def __iter__(self) -> Iterator[Request]:
        for part in self.positions():
            yield torch.arange(part.start, part.stop, part.step), self.epoch

    def positions(self) -> Iterator[slice]:
        """Yield the positions of each batch; without end for a stream of unknown length."""
        rank, stride = self._plan.rank, self._plan.world_size
        for first in itertools.count(rank, self._size * stride):
            stop = first + self._size * stride
            if self._num_samples is not None:
                if first >= self._num_samples:
                    return
                stop = min(stop, self._num_samples)
            yield slice(first, stop, stride)


class Batches(torch_data.Dataset[Any]):
    """Whole batches of a map-style data set.

    Random transforms of a sample depend only on seed, epoch and index.
    """

    def __init__(self, dataset: torch_data.Dataset[Any], seed: int) -> None:
        self._dataset = dataset
        self._seed = seed
        self._collate = getattr(dataset, "collate_fn", torch_data.default_collate)

    def __getitem__(self, request: Request) -> Any:
        indices, epoch = request
        if isinstance(self._dataset, memory.TensorData):
            return *self._dataset[indices], indices, epoch
        samples = []
        with _RandomStates():
            for index in indices.tolist():
                _seed_all(self._seed, epoch, index)
                samples.append(self._dataset[index])
        return self._collate(samples)


class StreamBatches(torch_data.IterableDataset[Any]):
    """This worker's batches of a stream.

    Each worker reads the stream from its beginning and keeps the samples of its batches, unless the
    stream has a method `samples_at(positions)` that yields the samples at ascending positions.
    """

    def __init__(self, stream: Any, requests: TrainRequests | EvalRequests, seed: int) -> None:
        self._stream = stream
        self._requests = requests
        self._seed = seed
        self._collate = getattr(stream, "collate_fn", torch_data.default_collate)

    def __iter__(self) -> Iterator[Any]:
        worker = torch_data.get_worker_info()
        first, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        # get_worker_info of the stream returns None: it would divide its samples a second time.
        torch_data._utils.worker._worker_info = None

        def mine() -> Iterator[range]:
            # A DataLoader takes one batch from each worker in turn. Without end for a stream of
            # unknown length.
            parts = itertools.islice(self._requests.positions(), first, None, count)
            return (range(part.start, part.stop, part.step or 1) for part in parts)

        if hasattr(self._stream, "set_epoch"):
            self._stream.set_epoch(self._requests.epoch)
        states = _RandomStates()
        with states:
            _seed_all(self._seed, self._requests.epoch, -1)
            samples = iter(self._samples(itertools.chain.from_iterable(mine())))
        for part in mine():
            with states:
                batch = list(itertools.islice(samples, len(part)))
            if len(batch) < len(part) and self._requests.is_finite:
                fix = "set a smaller --steps-per-epoch"
                if hasattr(self._stream, "num_samples"):
                    fix = f"correct its num_samples ({self._stream.num_samples})"
                raise errors.DataError(
                    f"The stream of {self._requests.purpose} data ended before position"
                    f" {part.stop}: {fix}."
                )
            if batch:
                yield self._collate(batch)
            if len(batch) < len(part):
                return

    def _samples(self, positions: Iterator[int]) -> Iterator[Any]:
        if hasattr(self._stream, "samples_at"):
            yield from self._stream.samples_at(positions)
            return
        wanted = next(positions, None)
        for position, sample in enumerate(self._stream):
            if wanted is None:
                return
            if position == wanted:
                yield sample
                wanted = next(positions, None)


class _RandomStates:
    """Random generators of their own for the body of a `with`; can be entered repeatedly."""

    def __init__(self) -> None:
        self._own: tuple[Any, Any, torch.Tensor] | None = None

    def __enter__(self) -> None:
        self._outer = self._exchange(self._own)

    def __exit__(self, *error: object) -> None:
        self._own = self._exchange(self._outer)

    @staticmethod
    def _exchange(states: tuple[Any, Any, torch.Tensor] | None) -> tuple[Any, Any, torch.Tensor]:
        before = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
        if states is not None:
            random.setstate(states[0])
            numpy.random.set_state(states[1])
            torch.set_rng_state(states[2])
        return before


def _seed_all(seed: int, epoch: int, index: int) -> None:
    digest = hashlib.sha256(f"sample:{seed}:{epoch}:{index}".encode()).digest()
    random.seed(digest)
    numpy.random.seed(int.from_bytes(digest[:4]))
    # torch.manual_seed would also queue a seed for CUDA, for each sample.
    torch.default_generator.manual_seed(int.from_bytes(digest[:8]) >> 1)


def ignore_signals_of_others(trainer: int, worker: int) -> None:
    """Make a worker ignore signals that the whole process group receives.

    The trainer records the signal and completes the step, which needs the worker. SIGTERM from the
    trainer still ends the worker: multiprocessing sends it when Python exits.
    """
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
