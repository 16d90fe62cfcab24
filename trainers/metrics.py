"""Metrics of a run, measured over spans of training and appended to metrics.jsonl by rank 0."""

import dataclasses
import datetime
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence

import torch

from trainers import data_paths, evaluation, fence, ranks, steps

FILE_NAME = "metrics.jsonl"


def file_path(run_dir: pathlib.Path | None, environ: Mapping[str, str]) -> pathlib.Path | None:
    """Return the metrics file: in `run_dir`, else as the job script sets it, else None."""
    if run_dir is not None:
        return run_dir / FILE_NAME
    if named := environ.get("ORCHESTRATOR_METRICS_FILE"):
        return pathlib.Path(named)
    if folder := environ.get("ORCHESTRATOR_RUN_DIR"):
        return pathlib.Path(folder) / FILE_NAME
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """Measurement of a stretch of training over all ranks."""

    #: Number of samples trained on, the sum over ranks.
    num_samples: int
    #: Wall time of the slowest rank.
    seconds: float
    #: Mean training loss per sample.
    loss: float
    #: Share of samples classified correctly, each before the step that it was part of.
    accuracy: float
    #: Share of the time spent waiting for data, of the rank that waited longest.
    data_wait_share: float

    @property
    def samples_per_second(self) -> float:
        """Throughput over all ranks."""
        return self.num_samples / self.seconds


class SpanMeter:
    """Measures consecutive spans; only `start`, `read` and `state` synchronize with the device."""

    def __init__(self, device: torch.device, source: data_paths.DataPath) -> None:
        self._device = device
        self._source = source
        self._num_samples = 0
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._seconds_before = 0.0
        self._wait_before = 0.0
        self._started = 0.0

    def start(self) -> None:
        """Start a span."""
        self._num_samples = 0
        self._loss.zero_()
        self._correct.zero_()
        self._seconds_before = 0.0
        self._go_on()

    def add(self, sums: steps.Sums) -> None:
        """Add a step of this rank."""
        self._num_samples += sums.num_samples
        self._loss += sums.loss
        self._correct += sums.correct

    def read(self) -> Span:
        """End the span and reduce it over all ranks; all ranks must call it."""
        state = self.state()
        sums = torch.tensor(
            [state["num_samples"], state["loss"], state["correct"]], dtype=torch.float64
        )
        slowest = torch.tensor([state["seconds"], state["wait_seconds"]], dtype=torch.float64)
        num_samples, loss, correct = ranks.sum_over_ranks(sums.to(self._device)).tolist()
        seconds, wait_seconds = ranks.max_over_ranks(slowest.to(self._device)).tolist()
        return Span(
            num_samples=round(num_samples),
            seconds=seconds,
            loss=loss / num_samples,
            accuracy=correct / num_samples,
            data_wait_share=wait_seconds / seconds,
        )

    def state(self) -> dict[str, float]:
        """Return this rank's part of the span so far."""
        self._synchronize()
        return {
            "num_samples": self._num_samples,
            "loss": self._loss.item(),
            "correct": self._correct.item(),
            "seconds": self._seconds_before + time.perf_counter() - self._started,
            "wait_seconds": self._source.wait_seconds - self._wait_before,
        }

    def restore(self, state: Mapping[str, float]) -> None:
        """Continue a span that an earlier attempt started."""
        self._num_samples = int(state["num_samples"])
        self._loss.fill_(state["loss"])
        self._correct.fill_(int(state["correct"]))
        self._seconds_before = state["seconds"]
        self._go_on()
        self._wait_before -= state["wait_seconds"]

    def _go_on(self) -> None:
        self._synchronize()
        self._wait_before = self._source.wait_seconds
        self._started = time.perf_counter()

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of the run."""

    #: Name, for example `val_accuracy`.
    name: str
    #: Value, not rounded.
    value: float
    #: Unit; empty if it has none.
    unit: str
    #: Number of completed optimizer steps.
    step: int
    #: Epoch, counted from 1 as in the log.
    epoch: int
    #: Rank of the metric; 0 also for metrics of all ranks.
    rank: int = 0


class MetricsFile:
    """The file `metrics.jsonl`: one JSON object per line, only appended to."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        attempt_fence: fence.Fence | None,
        world_size: int,
    ) -> None:
        self._path = path
        self._fence = attempt_fence
        self._world_size = world_size

    def append(self, metrics: Sequence[Metric]) -> None:
        """Append whole lines with one write; raise SupersededError if a newer attempt exists.

        If the metrics cannot be written, a warning is printed and training continues.
        """
        try:
            if self._fence is not None:
                self._fence.check()
            self._write("".join(self._line(metric) for metric in metrics).encode())
        except OSError as error:
            sys.stderr.write(f"trainers.train: warning: cannot write metrics: {error}\n")
            sys.stderr.flush()

    def _line(self, metric: Metric) -> str:
        record = {
            "name": metric.name,
            # JSON has no NaN and no infinity; null means not finite.
            "value": metric.value if math.isfinite(metric.value) else None,
            "unit": metric.unit,
            "step": metric.step,
            "epoch": metric.epoch,
            "rank": metric.rank,
            "world_size": self._world_size,
            "time": datetime.datetime.now().astimezone().isoformat(timespec="milliseconds"),
            "attempt": 0 if self._fence is None else self._fence.attempt,
        }
        return json.dumps(record, allow_nan=False) + "\n"

    def _write(self, lines: bytes) -> None:
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(handle).st_size
            # A killed attempt or a full disk may have left an incomplete line.
            if size and os.pread(handle, 1, size - 1) != b"\n":
                lines = b"\n" + lines
            if os.write(handle, lines) < len(lines):
                raise OSError(f"{self._path}: incomplete write")
        finally:
            os.close(handle)


def window_metrics(
    span: Span, *, num_steps: int, sample_name: str, step: int, epoch: int, is_warm: bool
) -> list[Metric]:
    """Return the metrics of a window of steps.

    The first window of an attempt includes allocation and tuning, so its time is left out.
    """
    loss = ("loss", span.loss, "")
    if not is_warm:
        return at(step, epoch, loss)
    return at(
        step,
        epoch,
        loss,
        ("step_time", span.seconds / num_steps, "seconds"),
        ("window_throughput", span.samples_per_second, f"{sample_name}/second"),
        ("data_wait_share", span.data_wait_share, ""),
    )


def epoch_metrics(
    span: Span,
    result: evaluation.Evaluation,
    learning_rate: float,
    *,
    sample_name: str,
    step: int,
    epoch: int,
) -> list[Metric]:
    """Return the metrics of an epoch; printed ones have the names of the log."""
    return at(
        step,
        epoch,
        ("epoch_time", span.seconds, "seconds"),
        ("val_loss", result.loss, ""),
        ("val_accuracy", result.accuracy, ""),
        ("throughput", span.samples_per_second, f"{sample_name}/second"),
        ("train_loss", span.loss, ""),
        ("train_accuracy", span.accuracy, ""),
        ("learning_rate", learning_rate, ""),
        ("epoch_data_wait_share", span.data_wait_share, ""),
    )


def memory_metrics(peaks: Sequence[tuple[int, int]], *, step: int, epoch: int) -> list[Metric]:
    """Return the peak memory of each rank's GPU; `peaks` has (allocated, reserved) per rank."""
    return [
        Metric(name=name, value=value, unit="bytes", step=step, epoch=epoch, rank=rank)
        for rank, peak in enumerate(peaks)
        for name, value in zip(
            ("gpu_memory_allocated_peak", "gpu_memory_reserved_peak"), peak, strict=True
        )
    ]


def summary_metrics(
    *, num_samples: int, sample_name: str, seconds: float, step: int, epoch: int
) -> list[Metric]:
    """Return the metrics of the whole run."""
    return at(
        step,
        epoch,
        ("total_time", seconds, "seconds"),
        ("total_throughput", num_samples / seconds, f"{sample_name}/second"),
    )


def at(step: int, epoch: int, *values: tuple[str, float, str]) -> list[Metric]:
    """Return metrics from (name, value, unit) at one step."""
    return [
        Metric(name=name, value=value, unit=unit, step=step, epoch=epoch)
        for name, value, unit in values
    ]
