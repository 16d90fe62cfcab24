"""Measurements of jobs, from their metrics, specs and results."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator import jobs
from orchestrator.reports import curves, records
from orchestrator.specs import arguments, ranks
from orchestrator.text import escaping
from orchestrator.usage import gpus

#: Metrics that are read: those of the trainer (docs/trainer.md) and of the shipped log patterns.
NAMES = tuple(
    "accuracy data_wait_share epoch_data_wait_share epoch_time gpu_memory_reserved_peak "
    "gpu_utilization memory step_time throughput total_throughput total_time val_accuracy "
    "window_throughput".split()
)
_GB = 1e9
_WHOLE_RUN = "nothing: the throughput is of the whole run"
_STEP_RATES = ("it/s", "ba/s", "batch/s", "step/s", "steps/s")
#: Values of result.json that become attributes.
_RESULT_KEYS = {
    "environment": ("mode", "device", "torch", "cuda", "nccl", "python"),
    "settings": ("task", "model", "dataset", "precision", "batch_size"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobRecord:
    job: jobs.Job
    spec: jobs.JobSpec
    #: those of NAMES, oldest first
    metrics: Sequence[jobs.Metric]
    #: the trainer's result.json; empty: none
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    gpus: Sequence[gpus.GpuUsage] = ()
    #: as in submission.provenance
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def result_table(self, key: str) -> Mapping[str, Any]:
        """Return a table of the result; a program may have written anything there."""
        table = self.result.get(key)
        if key == "environment" and table is None:
            table = self.result.get("surroundings")  # older runs
        return table if isinstance(table, Mapping) else {}


def measurement(record: JobRecord, unit: str) -> records.Measurement | str:
    """Return the measurement of a job, or why it has none."""
    series: dict[str, list[jobs.Metric]] = {name: [] for name in NAMES}
    for metric in record.metrics:
        if metric.name in series and records.is_plausible(metric.value):
            series[metric.name].append(metric)
    chosen, warm_up = _throughput(series)
    if not chosen:
        return "no throughput found"
    size = _size(record, unit)
    if not size:
        return "number of ranks unknown"
    job = record.job
    throughputs = [metric.value for metric in chosen]
    waiting = _median(series["data_wait_share"])
    step = _median(series["step_time"])
    steps = {}
    if step is not None and waiting is not None:
        steps = {"waiting for data": step * waiting, "all else": step * (1.0 - waiting)}
    utilisation = gpus.mean_utilization(record.gpus)
    if utilisation is None and (printed := series["gpu_utilization"]):
        utilisation = statistics.fmean(metric.value for metric in printed) / 100.0
    return records.Measurement(
        name=f"{job.name} {job.job_id or f'@{job.row}'}",
        size=size,
        throughput=statistics.median(throughputs),
        windows=tuple(throughputs) if chosen[0].name == "window_throughput" else (),
        nodes=job.nodes,
        gpus_allocated=job.gpus or None,
        epoch_seconds=_median(_warm(series["epoch_time"])),
        total_seconds=_last(series["total_time"]),
        data_wait_share=_median(_warm(series["epoch_data_wait_share"]))
        if waiting is None
        else waiting,
        memory_bytes=_memory(series),
        utilisation=utilisation,
        accuracy=_last(series["val_accuracy"] or series["accuracy"]),
        step_seconds=steps,
        source=chosen[-1].source,
        warm_up=warm_up,
        node_list=job.node_list or "",
        attributes=attributes(record),
    )


def _throughput(series: Mapping[str, list[jobs.Metric]]) -> tuple[list[jobs.Metric], str]:
    """Return the metrics that give the throughput, and what was left out as warm-up."""
    if windows := _positive(series["window_throughput"]):
        return windows, "the first window of each attempt"
    epochs = _main_unit(series["throughput"])
    # A summary such as "total images/sec: 306.1" has neither epoch nor step.
    of_parts = [metric for metric in epochs if metric.epoch is not None or metric.step is not None]
    epochs = of_parts or epochs
    warm = _positive(_warm(epochs))
    if not warm or (len(warm) == 1 and not of_parts):
        return warm or _positive(series["total_throughput"])[-1:], _WHOLE_RUN
    is_whole = len(warm) == len(_positive(epochs))
    return warm, "nothing: it had one epoch" if is_whole else "the first epoch of each attempt"


def _main_unit(metrics: Sequence[jobs.Metric]) -> list[jobs.Metric]:
    """Return the metrics with the most frequent unit.

    A program may report images/s and TFLOP/s. Steps/s, as in progress bars, are the last choice,
    because they do not say how much a step processes.
    """
    units = [unit for unit, _ in collections.Counter(m.unit for m in metrics).most_common()]
    units.sort(key=lambda unit: unit in _STEP_RATES)
    return [metric for metric in metrics if metric.unit == units[0]]


def _warm(metrics: Sequence[jobs.Metric]) -> list[jobs.Metric]:
    """Return all but the first of each attempt; all if none is left."""
    first: dict[int, jobs.Metric] = {}
    for metric in metrics:
        first.setdefault(metric.attempt, metric)
    return [m for m in metrics if first[m.attempt] is not m] or [*metrics]


def _positive(metrics: Sequence[jobs.Metric]) -> list[jobs.Metric]:
    return [metric for metric in metrics if metric.value > 0.0]


def _median(metrics: Sequence[jobs.Metric]) -> float | None:
    return statistics.median(metric.value for metric in metrics) if metrics else None


def _last(metrics: Sequence[jobs.Metric]) -> float | None:
    return metrics[-1].value if metrics else None


def _size(record: JobRecord, unit: str) -> int | None:
    """Return how many ranks or GPUs the job used.

    On an exclusive node it is allocated all GPUs (man sbatch, --exclusive; the same for partitions
    with OverSubscribe=EXCLUSIVE).
    """
    starts_ranks = ranks.has_ranks(record.spec)
    sizes = [metric.world_size for metric in record.metrics if metric.world_size]
    reported = sizes[-1] if sizes else None
    known = reported or (ranks.known_world_size(record.spec) if starts_ranks else None)
    if unit != "gpus":
        return known
    allocated = record.job.gpus
    environment = record.result_table("environment")
    mode, world_size = environment.get("mode"), environment.get("world_size")
    # One process of DataParallel uses all GPUs that it sees; any other one may use several.
    if allocated is None or mode == "dp":
        return allocated
    if mode in ("single", "ddp", "fsdp") and type(world_size) is int and world_size > 0:
        return min(allocated, world_size)
    if known == 1 and not starts_ranks:
        return allocated
    return min(allocated, known or allocated)


def _memory(series: Mapping[str, list[jobs.Metric]]) -> tuple[float, ...]:
    """Return the peak of the memory reserved on each rank's GPU."""
    peaks: dict[int, float] = {}
    printed = [metric for metric in series["memory"] if metric.unit == "GB"]
    for metric in [*series["gpu_memory_reserved_peak"], *printed]:
        value = metric.value * (_GB if metric.unit == "GB" else 1.0)
        rank = metric.rank or 0
        peaks[rank] = max(value, peaks.get(rank, 0.0))
    return tuple(peaks[rank] for rank in sorted(peaks))


def attributes(record: JobRecord) -> dict[str, str]:
    """Return the attributes of a job other than its size, as text."""
    spec, launch = record.spec, record.spec.launch
    tasks, task = spec.array.tasks, record.job.array_task_id
    own = tasks[task] if tasks is not None and task is not None and task < len(tasks) else {}
    values = {
        arguments.flag(key).removeprefix("--").replace("-", "_"): _text(value)
        for key, value in {**spec.args, **own}.items()
    }
    commit = record.provenance.get("git_commit")
    changed = "+changes" if record.provenance.get("git_dirty") else ""
    values |= {
        "program": launch.module
        or launch.script
        or launch.command
        or " ".join(launch.program or ()),
        "image": spec.container.image or "",
        "gpu_type": spec.resources.gpu_type or "",
        "partition": record.job.partition or "",
        "commit": f"{commit[:12]}{changed}" if isinstance(commit, str) else "",
    }
    for table, names in _RESULT_KEYS.items():
        read = record.result_table(table)
        values |= {name: _text(read[name]) for name in names if read.get(name) is not None}
    if "batch_size" in values:
        # The batch of all ranks in result.json, whichever was given.
        values.pop(curves.DEVICE_BATCH, None)
    return {name: escaping.visible(value) for name, value in values.items() if value}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return str(value)
