"""Metrics of a run: sums over an epoch and over windows of steps, and the files of rank 0."""

import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainers import distributed, errors, stop
from trainers.data import loading

FILE_NAME = "metrics.jsonl"
# Steps whose losses are added up together; until then they are kept on the device.
FLUSH_STEPS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """Measurement of a stretch of training over all ranks."""

    #: Number of samples trained on, the sum over ranks.
    num_samples: int
    #: Wall time of the slowest rank.
    seconds: float
    #: Mean per sample of `loss` and of the metrics of the task, each before the update of its step.
    means: Mapping[str, float]
    #: Fraction of the time spent waiting for data, of the rank that waited longest.
    data_wait_share: float

    @property
    def samples_per_second(self) -> float:
        """Throughput over all ranks."""
        return self.num_samples / self.seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of a meter between two steps; its sums are valid once the device has reached it."""

    #: Completed steps of the run.
    step: int = 0
    num_samples: int = 0
    sums: torch.Tensor | None = None
    seconds: float = 0.0
    wait_seconds: float = 0.0
    event: torch.cuda.Event | None = None


class Meter:
    """Sums of this rank since the start of the epoch. Adding does not wait for the device.

    The sums are exact: losses are float32, and their sum in float64 does not depend on the order
    of additions (up to some 2**20 steps of similar size).
    """

    def __init__(self, device: torch.device, source: loading.Source) -> None:
        #: Names of the sums: `loss`, and the metrics of the task.
        self.names: list[str] = []
        self._device = device
        self._source = source
        self._num_samples = 0
        self._sums = torch.zeros(0, dtype=torch.float64, device=device)
        self._pending: list[list[torch.Tensor]] = []
        self._wait_before = 0.0
        self._started = 0.0

    def start(self) -> None:
        """Start an epoch; waits for the device."""
        self._num_samples = 0
        # A resumed run may have other metrics than its checkpoint.
        self.names = []
        self._sums.zero_()
        self._continue(seconds=0.0, wait_seconds=0.0)

    def add(
        self, num_samples: int, loss: torch.Tensor, metrics: Mapping[str, torch.Tensor]
    ) -> None:
        """Add a forward pass: the sum of its losses, and the metrics of each of its samples.

        Without samples it only tells the names of the metrics, which all ranks need.
        """
        names = ["loss", *metrics]
        if not self.names:
            self.names = names
            self._sums = self._sums.new_zeros(len(self.names))
        if self.names != names:
            raise errors.UsageError(
                f"losses returned the metrics {names[1:]}, and earlier in this epoch"
                f" {self.names[1:]}: return the same in each step, in the same order."
            )
        if not self._pending:
            self._pending = [[] for _ in self.names]
        if num_samples == 0:
            return
        self._num_samples += num_samples
        for kept, value in zip(self._pending, (loss, *metrics.values()), strict=True):
            kept.append(value)
        if len(self._pending[0]) >= FLUSH_STEPS:
            self._flush()

    def snapshot(self, step: int = 0) -> Snapshot:
        """Return the state without waiting for the device."""
        self._flush()
        event = None
        sums = self._sums.to("cpu", copy=True, non_blocking=True)
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return Snapshot(
            step=step,
            num_samples=self._num_samples,
            sums=sums,
            seconds=time.perf_counter() - self._started,
            wait_seconds=self._source.wait_seconds - self._wait_before,
            event=event,
        )

    def read(self) -> Span:
        """Return the epoch over all ranks; waits for the device. All ranks must call it."""
        self._synchronize()
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
        # Reduced in host memory, with gloo.
        total = torch.tensor([end.num_samples - begin.num_samples, *sums], dtype=torch.float64)
        slowest = torch.tensor(
            [seconds, end.wait_seconds - begin.wait_seconds], dtype=torch.float64
        )
        num_samples, *sums = distributed.all_reduce(total).tolist()
        seconds, wait_seconds = distributed.all_reduce(slowest, "max").tolist()
        return Span(
            num_samples=round(num_samples),
            seconds=seconds,
            means={name: value / num_samples for name, value in zip(self.names, sums, strict=True)},
            data_wait_share=wait_seconds / seconds,
        )

    def state(self) -> dict[str, Any]:
        """Return this rank's part of the epoch so far, for a checkpoint; waits for the device."""
        self._synchronize()
        current = self.snapshot()
        # The sums are copied to the host in the background.
        self._synchronize()
        return {
            "names": self.names,
            "num_samples": current.num_samples,
            "sums": current.sums.tolist(),
            "seconds": current.seconds,
            "wait_seconds": current.wait_seconds,
        }

    def restore(self, states: Sequence[Mapping[str, Any]], dist: distributed.DistInfo) -> None:
        """Continue the epoch of an earlier attempt, of the same or another number of ranks.

        With another number, rank 0 continues the sums of all.
        """
        mine = states if dist.rank == 0 else []
        if len(states) == dist.world_size:
            mine = [states[dist.rank]]
        self.names = list(states[0]["names"])
        self._pending = []
        self._num_samples = sum(state["num_samples"] for state in mine)
        sums = torch.tensor([state["sums"] for state in mine], dtype=torch.float64)
        self._sums = sums.reshape(-1, len(self.names)).sum(dim=0).to(self._device)
        self._continue(
            seconds=max(state["seconds"] for state in (mine or states)),
            wait_seconds=max(state["wait_seconds"] for state in (mine or states)),
        )

    def _flush(self) -> None:
        if self._pending and self._pending[0]:
            losses, *metrics = self._pending
            parts = [torch.stack(losses).sum(dtype=torch.float64)]
            parts += [torch.cat(values).sum(dtype=torch.float64) for values in metrics]
            self._sums += torch.stack(parts)
            self._pending = [[] for _ in self.names]

    def _continue(self, *, seconds: float, wait_seconds: float) -> None:
        self._synchronize()
        self._wait_before = self._source.wait_seconds - wait_seconds
        self._started = time.perf_counter() - seconds

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


#: Name, value and unit.
Value = tuple[str, float, str]


def peak_memory(device: torch.device) -> list[Value]:
    """Return the peak memory of this rank's GPU: used by tensors, and reserved by PyTorch."""
    return [
        ("gpu_memory_allocated_peak", torch.cuda.max_memory_allocated(device), "bytes"),
        ("gpu_memory_reserved_peak", torch.cuda.max_memory_reserved(device), "bytes"),
    ]


class Outputs:
    """The files that rank 0 writes: metrics.jsonl, result.json, TensorBoard."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        suffix: str,
        fence: stop.Fence | None,
        world_size: int,
        tensorboard: bool,
    ) -> None:
        self.run_dir = path.parent
        self.suffix = suffix
        self._path = path
        self._fence = fence
        self._world_size = world_size
        self._board: Any = None
        if tensorboard:
            package = errors.import_package(
                "torch.utils.tensorboard", "tensorboard", "--tensorboard"
            )
            self._board = package.SummaryWriter(str(self.run_dir / f"tensorboard{suffix}"))
        # In a thread: a write on a shared file system takes milliseconds.
        self._writer = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self._writing: concurrent.futures.Future[None] | None = None

    def append(self, step: int, epoch: int, *values: Value, rank: int = 0) -> None:
        """Append metrics in the background; raise SupersededError if a newer attempt has started.

        If they cannot be written, a warning is printed and training continues.
        """
        now = datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")
        lines = [
            {
                "name": name,
                # JSON has no NaN and no infinity; null means not finite.
                "value": value if math.isfinite(value) else None,
                "unit": unit,
                "step": step,
                "epoch": epoch,
                "rank": rank,
                "world_size": self._world_size,
                "time": now,
                "attempt": 0 if self._fence is None else self._fence.attempt,
            }
            for name, value, unit in values
        ]
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
        self.wait()
        self._writing = self._writer.submit(self._append, text.encode())
        for name, value, _ in values if self._board is not None else ():
            self._board.add_scalar(name if rank == 0 else f"{name}/rank{rank}", value, step)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Replace result.json atomically; print a warning if it cannot be written."""
        path = self.run_dir / f"result{self.suffix}.json"
        draft = path.with_name(f"{path.name}.draft")
        try:
            draft.write_text(json.dumps(_finite(result), indent=2, allow_nan=False) + "\n")
            self.check()
            os.replace(draft, path)
        except OSError as error:
            warn(f"cannot write {path}: {error}")

    def check(self) -> None:
        """Raise SupersededError if a newer attempt of this job has started."""
        if self._fence is not None:
            self._fence.check()

    def wait(self) -> None:
        """Wait until the metrics are written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Write what is left and close the files."""
        self.wait()
        self._writer.shutdown()
        if self._board is not None:
            self._board.close()

    def _append(self, lines: bytes) -> None:
        try:
            self.check()
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            handle = os.open(self._path, flags, 0o600)
            try:
                size = os.fstat(handle).st_size
                # A killed attempt or a full disk may have left an incomplete line.
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    lines = b"\n" + lines
                if os.write(handle, lines) < len(lines):
                    raise OSError(f"{self._path}: incomplete write")
            finally:
                os.close(handle)
        except OSError as error:
            warn(f"cannot write metrics: {error}")


def open_outputs(
    args: argparse.Namespace, environ: Mapping[str, str], dist: distributed.DistInfo
) -> Outputs | None:
    """Return rank 0's output files; None on other ranks and without a run folder."""
    path, suffix = file_path(args.run_dir, environ)
    if path is None and args.profile_steps:
        raise errors.UsageError("--profile-steps requires --run-dir, the folder for the profile.")
    if path is None or dist.rank != 0:
        return None
    if environ.get("ORCHESTRATOR_RUN_DIR"):
        if not path.parent.is_dir():
            raise errors.UsageError(
                f"The run folder {path.parent} does not exist here: create it, or bind it into the"
                " container."
            )
    else:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.UsageError(
                f"Cannot create the run folder: {error}. Set another one with --run-dir."
            ) from error
    fence = stop.read_fence(environ, path.parent)
    if fence is not None:
        fence.check()
    return Outputs(
        path, suffix=suffix, fence=fence, world_size=dist.world_size, tensorboard=args.tensorboard
    )


def monitor_files(
    args: argparse.Namespace, environ: Mapping[str, str]
) -> tuple[pathlib.Path | None, str]:
    """Return folder and name of the GPU monitor's files; no folder if there is no run folder."""
    path, suffix = file_path(args.run_dir, environ)
    return path.parent if path is not None and path.parent.is_dir() else None, f"gpu{suffix}"


def file_path(
    run_dir: pathlib.Path | None, environ: Mapping[str, str]
) -> tuple[pathlib.Path | None, str]:
    """Return the metrics file, or None without a run folder, and the suffix of an array task.

    The file is in `run_dir`, else where the job script sets it. The tasks of an array share a run
    folder; the file of task 4 is `metrics.4.jsonl`, and the suffix of all its files is `.4`.
    """
    if run_dir is not None:
        return run_dir / FILE_NAME, ""
    if named := environ.get("ORCHESTRATOR_METRICS_FILE"):
        path = pathlib.Path(named)
        return path, path.name.removeprefix("metrics").removesuffix(".jsonl")
    folder = environ.get("ORCHESTRATOR_RUN_DIR")
    return pathlib.Path(folder) / FILE_NAME if folder else None, ""


def warn(message: str) -> None:
    """Print a warning to stderr."""
    print(f"trainers.train: warning: {message}\n", end="", file=sys.stderr, flush=True)


def _finite(tree: Any) -> Any:
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, Mapping):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_finite(value) for value in tree]
    return tree
