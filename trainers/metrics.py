"""Metrics of a run: sums over an epoch and over windows of steps, and the files of rank 0."""

import argparse
import concurrent.futures
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from trainers import distributed, errors, stop
from trainers.data import loading

FILE_NAME = "metrics.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """Measurement of a stretch of training over all ranks."""

    num_samples: int = 0
    #: Sums of `loss` and of the metrics of the task, each before the update of its step.
    sums: dict[str, float] = dataclasses.field(default_factory=dict)
    #: Wall time of the slowest rank.
    seconds: float = 0.0
    #: Time spent waiting for data by the rank that waited longest.
    wait_seconds: float = 0.0

    @property
    def means(self) -> dict[str, float]:
        return {name: total / self.num_samples for name, total in self.sums.items()}

    @property
    def data_wait_share(self) -> float:
        return self.wait_seconds / self.seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of a meter between two steps; its sums are valid once the device has reached it."""

    step: int = 0
    num_samples: int = 0
    sums: torch.Tensor | None = None
    seconds: float = 0.0
    wait_seconds: float = 0.0
    event: torch.cuda.Event | None = None
    #: Begin and end of the steps since the last snapshot, without the wait for other ranks.
    steps: Sequence[tuple[Any, Any]] = ()

    def compute_seconds(self) -> float:
        """Return the mean time of this rank's steps; waits for the device."""
        return statistics.fmean(
            begin.elapsed_time(end) / 1000 if isinstance(end, torch.cuda.Event) else end - begin
            for begin, end in self.steps
        )


class Meter:
    """Sums of this rank since the start of the epoch; adding does not wait for the device.

    A pass adds a float32: the sum in float64 is exact and independent of windows and attempts.
    """

    def __init__(self, device: torch.device, source: loading.Source) -> None:
        self._device, self._source = device, source
        self._steps: list[tuple[Any, Any]] = []
        self.start(Span())

    def start(self, span: Span, *, rank: int = 0) -> None:
        """Start an epoch; rank 0 continues what all ranks of an earlier attempt measured."""
        own = span if rank == 0 else Span()
        #: Names of the sums: `loss`, and the metrics of the task.
        self.names = list(span.sums)
        sums = [own.sums.get(name, 0.0) for name in self.names]
        self._sums = torch.tensor(sums, dtype=torch.float64, device=self._device)
        self._num_samples = own.num_samples
        self.synchronize()
        self._wait_before = self._source.wait_seconds - span.wait_seconds
        self._started = time.perf_counter() - span.seconds

    def add(
        self, num_samples: int, losses: torch.Tensor, metrics: Mapping[str, torch.Tensor]
    ) -> None:
        """Add losses and metrics of a forward pass; without samples, only their names."""
        names = ["loss", *metrics]
        if not self.names:
            self.names = names
            self._sums = self._sums.new_zeros(len(names))
        if self.names != names:
            raise errors.UsageError(
                f"losses returned the metrics {names[1:]}, and earlier in this epoch"
                f" {self.names[1:]}: return the same in each step, in the same order."
            )
        if num_samples:
            self._num_samples += num_samples
            values = torch.stack((losses.detach(), *metrics.values()))
            self._sums += values.sum(dim=1, dtype=torch.float32)

    def begin_step(self) -> None:
        self._began = self._now()

    def end_step(self, losses: torch.Tensor) -> None:
        """End the step when their backward pass has computed all gradients of this rank.

        DDP waits for other ranks in a callback after the backward pass. Ours is queued before it.
        """
        queue = torch.autograd.Variable._execution_engine.queue_callback
        losses.register_hook(
            lambda gradient: queue(lambda: self._steps.append((self._began, self._now())))
        )

    def _now(self) -> Any:
        """Return the time, or on a GPU an event that it reaches after all work so far."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        # The callback runs in a thread of the backward pass.
        event.record(torch.cuda.current_stream(self._device))
        return event

    def snapshot(self, step: int = 0) -> Snapshot:
        """Return the state without waiting for the device; with a step, end a window there."""
        steps, self._steps = (self._steps, []) if step else ([], self._steps)
        return Snapshot(
            step=step,
            num_samples=self._num_samples,
            sums=self._sums.to("cpu", copy=True, non_blocking=True),
            seconds=time.perf_counter() - self._started,
            wait_seconds=self._source.wait_seconds - self._wait_before,
            event=self._now() if self._device.type == "cuda" else None,
            steps=steps,
        )

    def read(self) -> Span:
        """Return the sums so far over all ranks; waits for the device. All ranks must call it."""
        self.synchronize()
        # A rank without samples does not know the names.
        self.names = distributed.broadcast(self.names)
        if not self._num_samples:
            self._sums = self._sums.new_zeros(len(self.names))
        return self.span(Snapshot(), self.snapshot())

    def span(self, begin: Snapshot, end: Snapshot) -> Span:
        """Return what was between two snapshots over all ranks; all ranks must call it."""
        if end.event is not None:
            end.event.synchronize()
        seconds = end.seconds - begin.seconds
        if begin.event is not None and end.event is not None:
            # The host may be some steps ahead of the device.
            seconds = begin.event.elapsed_time(end.event) / 1000
        # At the start of an epoch there are no sums yet, or they are zero.
        sums = (end.sums - begin.sums if begin.num_samples else end.sums).tolist()
        total = torch.tensor([end.num_samples - begin.num_samples, *sums], dtype=torch.float64)
        num_samples, *sums = distributed.all_reduce(total).tolist()
        times = [seconds, end.wait_seconds - begin.wait_seconds]
        slowest = torch.tensor(times, dtype=torch.float64)
        seconds, wait_seconds = distributed.all_reduce(slowest, "max").tolist()
        named, count = dict(zip(self.names, sums, strict=True)), round(num_samples)
        return Span(num_samples=count, sums=named, seconds=seconds, wait_seconds=wait_seconds)

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


#: Name, value and unit; then the rank, if it is not 0.
Value = tuple[str, float, str] | tuple[str, float, str, int]


class BackgroundWriter:
    """A thread that runs one call at a time: writing to a shared file system takes long."""

    def __init__(self) -> None:
        self._executor = concurrent.futures.ThreadPoolExecutor(1)
        self._last: concurrent.futures.Future[None] | None = None

    def start(self, call: Callable[..., None], *arguments: Any) -> None:
        self.wait()
        self._last = self._executor.submit(call, *arguments)

    def wait(self) -> None:
        if self._last is not None:
            self._last.result()


class Outputs:
    """The files that rank 0 writes: metrics.jsonl, result.json, TensorBoard."""

    def __init__(
        self, path: pathlib.Path, environ: Mapping[str, str], world_size: int, tensorboard: bool
    ) -> None:
        self.path = path
        #: Raises SupersededError if a newer attempt of this job has started.
        self.check = functools.partial(stop.check_attempt, environ, path.parent)
        attempt = int(environ.get("ORCHESTRATOR_ATTEMPT", 0))
        self._labels = {"world_size": world_size, "attempt": attempt}
        self._board: Any = None
        if tensorboard:
            from torch.utils import tensorboard as board  # needs the package tensorboard

            self._board = board.SummaryWriter(str(beside(path, "tensorboard")))
        self._writer = BackgroundWriter()

    def append(self, step: int, epoch: int, *values: Value) -> None:
        """Append metrics in the background; print a warning if the previous ones failed."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")
        lines = ""
        for name, value, unit, *ranks in values:
            rank = sum(ranks)
            more = {"step": step, "epoch": epoch, "rank": rank, **self._labels, "time": now}
            lines += to_json({"name": name, "value": value, "unit": unit, **more}) + "\n"
            if self._board is not None:
                self._board.add_scalar(name if rank == 0 else f"{name}/rank{rank}", value, step)
        self._writer.start(self._append, lines.encode())

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Replace result.json atomically; print a warning if it cannot be written."""
        path = beside(self.path, "result", ".json")
        draft = path.with_name(f"{path.name}.draft")
        try:
            draft.write_text(to_json(result, indent=2) + "\n")
            self.check()
            os.replace(draft, path)
        except OSError as error:
            warn(f"cannot write {path}: {error}")

    def close(self) -> None:
        self._writer.wait()
        if self._board is not None:
            self._board.close()

    def _append(self, lines: bytes) -> None:
        try:
            self.check()
            with open(self.path, "ab+", opener=functools.partial(os.open, mode=0o600)) as file:
                # A killed attempt or a full disk may have left an incomplete line.
                if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                    lines = b"\n" + lines
                file.write(lines)
        except OSError as error:
            warn(f"cannot write metrics: {error}")


def open_outputs(
    args: argparse.Namespace, environ: Mapping[str, str], dist: distributed.DistInfo
) -> Outputs | None:
    """Return rank 0's output files; None on other ranks and without a run folder."""
    path = file_path(args.run_dir, environ)
    if path is None and args.profile_steps:
        raise errors.UsageError("--profile-steps requires --run-dir, the folder for the profile.")
    if path is None or dist.rank != 0:
        return None
    if environ.get("ORCHESTRATOR_RUN_DIR") and not path.parent.is_dir():
        message = f"The run folder {path.parent} does not exist here: bind it into the container."
        raise errors.UsageError(message)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"Cannot create the run folder: {error}. Set another one with --run-dir."
        raise errors.UsageError(message) from error
    stop.check_attempt(environ, path.parent)
    return Outputs(path, environ, dist.world_size, args.tensorboard)


def file_path(run_dir: pathlib.Path | None, environ: Mapping[str, str]) -> pathlib.Path | None:
    """Return the metrics file in `run_dir`, else that of the job script; None without both."""
    if run_dir is None and (path := environ.get("ORCHESTRATOR_METRICS_FILE")):
        return pathlib.Path(path)
    folder = run_dir or environ.get("ORCHESTRATOR_RUN_DIR")
    return pathlib.Path(folder, FILE_NAME) if folder else None


def beside(path: pathlib.Path, name: str, ending: str = "") -> pathlib.Path:
    """Return another output of an array task: `result.4.json` beside `metrics.4.jsonl`."""
    suffix = path.name.removeprefix("metrics").removesuffix(".jsonl")
    return path.with_name(f"{name}{suffix}{ending}")


def warn(message: str) -> None:
    print(f"trainers.train: warning: {message}\n", end="", file=sys.stderr, flush=True)


def to_json(value: Mapping[str, Any], indent: int | None = None) -> str:
    """Return JSON, which has no NaN and no infinity: null means not finite."""
    finite = json.loads(json.dumps(value), parse_constant=lambda name: None)
    return json.dumps(finite, indent=indent)
