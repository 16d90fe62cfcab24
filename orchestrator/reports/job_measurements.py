"""A job and its metrics -> what it showed."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator import jobs
from orchestrator.reports import curves, records
from orchestrator.scaling import quantiles
from orchestrator.specs import arguments, ranks
from orchestrator.text import escaping
from orchestrator.usage import gpus

#: Names that are read; the trainer's (docs/trainer.md) and those of the shipped patterns.
NAMES = (
    "accuracy",
    "data_wait_share",
    "epoch_data_wait_share",
    "epoch_time",
    "gpu_memory_reserved_peak",
    "gpu_utilization",
    "memory",
    "step_time",
    "throughput",
    "total_throughput",
    "total_time",
    "val_accuracy",
    "window_throughput",
)
_GB = 1e9
_WHOLE_RUN = "nothing: the throughput is of the whole run"
_STEP_RATES = ("it/s", "ba/s", "batch/s", "step/s", "steps/s")
#: Of result.json; the others are the job's own, or do not change how fast it is.
_SURROUNDINGS = ("mode", "device", "torch", "cuda", "nccl", "python")
#: Modes with a GPU for each rank.
_RANK_A_GPU = ("single", "ddp")
_SETTINGS = ("model", "dataset", "precision", "batch_size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """What was found of one job."""

    job: jobs.Job
    spec: jobs.JobSpec
    #: of NAMES, oldest first
    metrics: Sequence[jobs.Metric]
    #: the trainer's result.json; empty where there is none
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: what was read of its GPUs
    gpus: Sequence[gpus.Figures] = ()
    #: as submission.provenance is, as a record
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def unit_of(told: Sequence[Told]) -> str:
    """Return gpus where each job had some, else ranks."""
    return "gpus" if all(one.job.gpus for one in told) else "ranks"


def measurement(told: Told, unit: str) -> records.Measurement | str:
    """Return what the job showed, or why it shows nothing."""
    series = _Series(told.metrics)
    found = _throughput(series)
    if isinstance(found, str):
        return found
    values, kind, warm_up = found
    size = _gpus(told) if unit == "gpus" else _ranks(told.metrics)
    if not size:
        return "its number of ranks is not known"
    return records.Measurement(
        name=f"{told.job.name} {told.job.job_id or f'@{told.job.row}'}",
        size=size,
        throughput=quantiles.median(values),
        windows=tuple(values) if kind == "window_throughput" else (),
        nodes=told.job.nodes,
        gpus_allocated=told.job.gpus or None,
        epoch_seconds=_middle(series.warm("epoch_time")),
        total_seconds=_last(series.values("total_time")),
        data_wait_share=_middle(
            series.values("data_wait_share") or series.warm("epoch_data_wait_share")
        ),
        memory_bytes=_memory(told.metrics),
        utilisation=_utilisation(told.gpus, series.values("gpu_utilization")),
        accuracy=_last(series.values("val_accuracy") or series.values("accuracy")),
        step_seconds=_step(series),
        source=series.source(kind),
        warm_up=warm_up,
        node_list=told.job.node_list or "",
        attributes=attributes(told),
    )


class _Series:
    """The metrics of one job by name; what cannot have been measured is left out."""

    def __init__(self, metrics: Sequence[jobs.Metric]) -> None:
        self._by_name: dict[str, list[jobs.Metric]] = {}
        for metric in metrics:
            if records.is_plausible(metric.value):
                self._by_name.setdefault(metric.name, []).append(metric)

    def values(self, name: str) -> list[float]:
        return [metric.value for metric in self._by_name.get(name, [])]

    def warm(self, name: str) -> list[float]:
        """Return the values of epochs but the first of each attempt; all where none is left."""
        found = self._by_name.get(name, [])
        first: dict[int, jobs.Metric] = {}
        for metric in found:
            first.setdefault(metric.attempt, metric)
        warm = [metric.value for metric in found if first[metric.attempt] is not metric]
        return warm or [metric.value for metric in found]

    def of_main_unit(self, name: str) -> _Series:
        """Return the series with one unit of this metric: the one most values have.

        A program may tell images/s and TFLOP/s, and both are its throughput. Steps a second, which
        progress bars show, say nothing of how much is in a step.
        """
        units = collections.Counter(metric.unit for metric in self._by_name.get(name, []))
        if len(units) < 2:
            return self
        exact = [unit for unit, _ in units.most_common() if unit not in _STEP_RATES]
        main = exact[0] if exact else units.most_common(1)[0][0]
        of_it = [one for one in self._by_name[name] if one.unit == main]
        return _Series([*self._all_but(name), *of_it])

    def of_parts(self, name: str) -> _Series:
        """Return the series without what is of the whole run, where parts of it have the metric.

        A log's last line, such as "total images/sec: 306.1", has neither epoch nor step.
        """
        parts = self._parts(name)
        return _Series([*self._all_but(name), *parts]) if parts else self

    def has_parts(self, name: str) -> bool:
        return bool(self._parts(name))

    def _parts(self, name: str) -> list[jobs.Metric]:
        found = self._by_name.get(name, [])
        return [one for one in found if one.epoch is not None or one.step is not None]

    def _all_but(self, name: str) -> Iterable[jobs.Metric]:
        return (
            metric
            for other, metrics in self._by_name.items()
            if other != name
            for metric in metrics
        )

    def source(self, name: str) -> str:
        return self._by_name[name][-1].source


def _throughput(series: _Series) -> tuple[list[float], str, str] | str:
    """Return the numbers, their name and what was left out as warm-up; or why there are none."""
    windows = _positive(series.values("window_throughput"))
    if windows:
        return windows, "window_throughput", "the first window of each attempt"
    series = series.of_main_unit("throughput").of_parts("throughput")
    epochs = _positive(series.warm("throughput"))
    if epochs:
        is_warm = len(epochs) < len(_positive(series.values("throughput")))
        left_out = "the first epoch of each attempt" if is_warm else "nothing: it had one epoch"
        if len(epochs) == 1 and not series.has_parts("throughput"):
            left_out = _WHOLE_RUN
        return epochs, "throughput", left_out
    total = _positive(series.values("total_throughput"))
    if total:
        return total[-1:], "total_throughput", _WHOLE_RUN
    return "told no throughput"


def _positive(values: Iterable[float]) -> list[float]:
    return [value for value in values if value > 0.0]


def _middle(values: Sequence[float]) -> float | None:
    return quantiles.median(values) if values else None


def _last(values: Sequence[float]) -> float | None:
    return values[-1] if values else None


def _gpus(told: Told) -> int | None:
    """Return how many GPUs worked: of nodes that are not shared a job has all, whatever it asked.

    (man sbatch, --exclusive; the same for partitions with OverSubscribe=EXCLUSIVE.)
    """
    held, launch = told.job.gpus, told.spec.launch
    read = told.result.get("surroundings")
    found = read if isinstance(read, Mapping) else {}
    mode, used = found.get("mode"), found.get("world_size")
    if held is None or mode == "dp":
        # One process of DataParallel has all that it sees.
        return held
    if mode in _RANK_A_GPU and type(used) is int and used > 0:
        return min(held, used)
    if launch.launcher == "python" or launch.command is not None or launch.batch_file is not None:
        # One process of such a job may well have several GPUs.
        ranks_told = _ranks(told.metrics) or 1
        return min(held, ranks_told) if ranks_told > 1 else held
    return min(held, _ranks(told.metrics) or ranks.known_world_size(told.spec) or held)


def _ranks(metrics: Sequence[jobs.Metric]) -> int | None:
    sizes = [metric.world_size for metric in metrics if metric.world_size]
    return sizes[-1] if sizes else None


def _memory(metrics: Sequence[jobs.Metric]) -> tuple[float, ...]:
    """Return the most that was reserved on each rank's GPU: what the card must hold."""
    most: dict[int, float] = {}
    for metric in metrics:
        if records.is_plausible(metric.value) and (
            metric.name == "gpu_memory_reserved_peak"
            or (metric.name == "memory" and metric.unit == "GB")
        ):
            value = metric.value * (_GB if metric.unit == "GB" else 1.0)
            rank = metric.rank or 0
            most[rank] = max(value, most.get(rank, 0.0))
    return tuple(most[rank] for rank in sorted(most))


def _step(series: _Series) -> dict[str, float]:
    step = _middle(series.values("step_time"))
    waiting = _middle(series.values("data_wait_share"))
    if step is None or waiting is None:
        return {}
    return {"waiting for data": step * waiting, "all else": step * (1.0 - waiting)}


def _utilisation(found: Sequence[gpus.Figures], printed: Sequence[float]) -> float | None:
    measured = gpus.mean_utilization(found)
    if measured is None and printed:
        return math.fsum(printed) / len(printed) / 100.0
    return measured


def attributes(told: Told) -> dict[str, str]:
    """Return what the job has besides its size, as text."""
    spec, launch = told.spec, told.spec.launch
    task = told.job.array_task_id
    own: Mapping[str, jobs.ArgumentValue] = {}
    if spec.array.tasks is not None and task is not None and task < len(spec.array.tasks):
        own = spec.array.tasks[task]
    found = {
        arguments.flag(key).removeprefix("--").replace("-", "_"): _text(value)
        for key, value in {**spec.args, **own}.items()
    }
    program = launch.module or launch.script or launch.command or " ".join(launch.program or ())
    commit = told.provenance.get("git_commit")
    changed = "+changes" if told.provenance.get("git_dirty") else ""
    found |= {
        "program": program,
        "image": spec.container.image or "",
        "gpu_type": spec.resources.gpu_type or "",
        "partition": told.job.partition or "",
        "commit": f"{commit[:12]}{changed}" if isinstance(commit, str) else "",
    }
    for table, names in (("surroundings", _SURROUNDINGS), ("settings", _SETTINGS)):
        read = told.result.get(table)
        for name in names:
            value = read.get(name) if isinstance(read, Mapping) else None
            if value is not None:
                found[name] = _text(value)
    if "batch_size" in found:
        # result.json has the batch of all ranks, whichever was given.
        found.pop(curves.DEVICE_BATCH, None)
    # A program's result may hold what a terminal would act on.
    return {name: escaping.visible(value) for name, value in found.items() if value}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return str(value)
