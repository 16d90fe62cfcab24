"""Reads GPU samples of nvidia-smi or the trainer's monitor.

Formats: `nvidia-smi --query-gpu=... --format=csv` with any columns in any order, with or without
units, and `nvidia-smi dmon`.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence

#: A display or a monitor alone makes a percent or two.
IDLE_BELOW_PERCENT = 5.0

#: Quantity -> columns of nvidia-smi (`nvidia-smi --help-query-gpu`) or of `nvidia-smi dmon`.
_NAMES = {
    "timestamp": "timestamp time",
    "index": "index gpu",
    "uuid": "uuid gpu_uuid",
    "bus": "pci.bus_id gpu_bus_id",
    "name": "name gpu_name",
    "busy": "utilization.gpu sm",
    "memory_busy": "utilization.memory mem",
    "used": "memory.used fb",
    "total": "memory.total",
    "power": "power.draw power.draw.average power.draw.instant pwr",
}
_COLUMNS = {column: quantity for quantity, text in _NAMES.items() for column in text.split()}
_HEAD_WORD = re.compile(r"([a-z_.]+)(?: \[([^\]]*)\])?", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([A-Za-z%]*)", re.ASCII)
#: In MiB. dmon calls MiB "MB" (`nvidia-smi dmon -h`: "Frame buffer usage, MB").
_MIB = {"": 1.0, "MiB": 1.0, "MB": 1.0, "KiB": 1 / 1024, "GiB": 1024.0, "GB": 1024.0}
#: Samples are counted in steps of this, so that memory is bounded for files of any length.
_STEPS = {"busy": 1.0, "memory_busy": 1.0, "used": 16.0, "power": 1.0}
#: Larger numbers are from incomplete lines.
_LIMITS = {"busy": 100.0, "memory_busy": 100.0, "used": 4e6, "total": 4e6, "power": 5e3}
#: A file with more GPUs is not of nvidia-smi.
_MAX_GPUS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """The distribution of one quantity over time."""

    mean: float
    p50: float
    p95: float
    max: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuUsage:
    """The samples of one GPU. None: not in the file."""

    host: str
    #: nvidia-smi's index, else UUID or bus ID, else its position among the lines
    index: str
    name: str
    #: number of samples
    readings: int
    #: share of the time in which a kernel ran
    utilization_percent: Spread | None = None
    #: share of the time in which memory was read or written
    memory_utilization_percent: Spread | None = None
    memory_used_mib: Spread | None = None
    memory_total_mib: float | None = None
    power_watts: Spread | None = None
    #: share of the samples below IDLE_BELOW_PERCENT
    idle_share: float | None = None


class _Samples:
    """Samples of one quantity, counted in steps."""

    def __init__(self, step: float) -> None:
        self._step = step
        self._sum = self._max = 0.0
        self._steps: collections.Counter[int] = collections.Counter()

    def add(self, value: float) -> None:
        self._sum += value
        self._max = max(self._max, value)
        self._steps[round(value / self._step)] += 1

    def share_below(self, limit: float) -> float | None:
        below = sum(n for step, n in self._steps.items() if step * self._step < limit)
        return below / self._steps.total() if self._steps else None

    def spread(self) -> Spread | None:
        if not self._steps:
            return None
        return Spread(
            mean=self._sum / self._steps.total(),
            p50=self._quantile(0.5),
            p95=self._quantile(0.95),
            max=self._max,
        )

    def _quantile(self, share: float) -> float:
        left = math.ceil(share * self._steps.total())
        for step in sorted(self._steps):
            left -= self._steps[step]
            if left <= 0:
                break
        return min(step * self._step, self._max)


@dataclasses.dataclass
class _Gpu:
    name: str = ""
    memory_total_mib: float | None = None
    readings: int = 0
    #: by quantity
    samples: dict[str, _Samples] = dataclasses.field(
        default_factory=lambda: {quantity: _Samples(step) for quantity, step in _STEPS.items()}
    )


class Reader:
    """Reads one file line by line. Other lines are ignored."""

    def __init__(self) -> None:
        #: quantity and unit of each column
        self._columns: list[tuple[str, str]] = []
        self._is_dmon = False
        self._gpus: dict[str, _Gpu] = {}
        self._second = ""
        self._position = 0

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._read_line(line.strip())

    def usage(self, host: str) -> list[GpuUsage]:
        """Return the usage of each GPU in the order of the file."""
        return [
            GpuUsage(
                host=host,
                index=index,
                name=gpu.name,
                readings=gpu.readings,
                utilization_percent=gpu.samples["busy"].spread(),
                memory_utilization_percent=gpu.samples["memory_busy"].spread(),
                memory_used_mib=gpu.samples["used"].spread(),
                memory_total_mib=gpu.memory_total_mib,
                power_watts=gpu.samples["power"].spread(),
                idle_share=gpu.samples["busy"].share_below(IDLE_BELOW_PERCENT),
            )
            for index, gpu in self._gpus.items()
        ]

    def _read_line(self, line: str) -> None:
        # The head of dmon is repeated. Its second line contains the units.
        if line.startswith("#"):
            columns = [(_COLUMNS.get(word.lower(), ""), "") for word in line[1:].split()]
            if any(quantity for quantity, _ in columns):
                self._columns, self._is_dmon = columns, True
            return
        words = line.split() if self._is_dmon else [word.strip(' "') for word in line.split(",")]
        if "," in line and (columns := _csv_columns(words)):
            # Another attempt, or another run of nvidia-smi, appends to the same file.
            self._columns, self._is_dmon = columns, False
        elif self._columns and len(words) == len(self._columns):
            pairs = zip(self._columns, words, strict=True)
            self._add({quantity: (word, unit) for (quantity, unit), word in pairs})

    def _add(self, cells: Mapping[str, tuple[str, str]]) -> None:
        values = {name: _number(name, *cells[name]) for name in _LIMITS if name in cells}
        if all(value is None for value in values.values()):
            return
        key = self._key(cells)
        if key not in self._gpus and len(self._gpus) >= _MAX_GPUS:
            return
        gpu = self._gpus.setdefault(key, _Gpu())
        gpu.readings += 1
        gpu.name = gpu.name or cells.get("name", ("", ""))[0]
        gpu.memory_total_mib = values.pop("total", None) or gpu.memory_total_mib
        for quantity, value in values.items():
            if value is not None:
                gpu.samples[quantity].add(value)

    def _key(self, cells: Mapping[str, tuple[str, str]]) -> str:
        for name in ("index", "uuid", "bus"):
            if name in cells:
                return cells[name][0]
        # Lines of one second are the node's GPUs, always in the same order. A query takes some
        # milliseconds.
        second = cells.get("timestamp", ("", ""))[0].partition(".")[0]
        self._position = self._position + 1 if second and second == self._second else 0
        self._second = second
        return str(self._position)


def _csv_columns(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the quantity and unit of each column; empty if this is not a head line."""
    columns = []
    for word in words:
        match = _HEAD_WORD.fullmatch(word)
        if match is None:
            return []
        columns.append((_COLUMNS.get(match[1].lower(), ""), match[2] or ""))
    return columns if any(quantity in _LIMITS for quantity, _ in columns) else []


def _number(quantity: str, word: str, unit: str) -> float | None:
    """Parse `45 %`, `95830 MiB`, `210.34 W`, `45`; None for `[N/A]`, `[Not Supported]`, `-`."""
    match = _NUMBER.fullmatch(word)
    if match is None:
        return None
    value = float(match[1])
    if quantity in ("used", "total"):
        value *= _MIB.get(match[2] or unit, math.inf)
    return value if value <= _LIMITS[quantity] else None


def mean_utilization(gpu_usage: Iterable[GpuUsage]) -> float | None:
    """Return the mean share of time in which GPUs were busy, weighted by their samples."""
    known = [
        (gpu.utilization_percent.mean, gpu.readings)
        for gpu in gpu_usage
        if gpu.utilization_percent is not None
    ]
    weight = sum(readings for _, readings in known)
    return sum(mean * readings for mean, readings in known) / weight / 100.0 if weight else None
