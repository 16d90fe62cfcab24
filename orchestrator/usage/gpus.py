"""What nvidia-smi or the trainer's monitor wrote of GPUs -> how busy, how full, how many watts.

Read are nvidia-smi's `--query-gpu=... --format=csv` with any columns in any order, with or without
units, and `nvidia-smi dmon`. A file may be of any length: numbers are counted, never kept.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence

#: A reading below this is no work: a display or a monitor alone makes a percent or two.
IDLE_BELOW_PERCENT = 5.0

#: Column of nvidia-smi (`nvidia-smi --help-query-gpu`) or of `nvidia-smi dmon` -> what it says.
_COLUMNS = {
    "timestamp": "timestamp",
    "time": "timestamp",
    "index": "index",
    "gpu": "index",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "pci.bus_id": "bus",
    "gpu_bus_id": "bus",
    "name": "name",
    "gpu_name": "name",
    "utilization.gpu": "busy",
    "sm": "busy",
    "utilization.memory": "memory_busy",
    "mem": "memory_busy",
    "memory.used": "used",
    "fb": "used",
    "memory.total": "total",
    "power.draw": "power",
    "power.draw.average": "power",
    "power.draw.instant": "power",
    "pwr": "power",
}
_HEAD_WORD = re.compile(r"([a-z_.]+)(?: \[([^\]]*)\])?", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([A-Za-z%]*)", re.ASCII)
#: Of memory, in MiB. What dmon calls MB is MiB (`nvidia-smi dmon -h`: "Frame buffer usage, MB").
_MIB = {"": 1.0, "MiB": 1.0, "MB": 1.0, "KiB": 1 / 1024, "GiB": 1024.0, "GB": 1024.0}
#: Memory is counted in steps of this, so that no file makes more than some thousand of them.
_MEMORY_STEP_MIB = 16.0
#: No number of a GPU is larger: a torn line can hold any digits.
_MOST = {"busy": 100.0, "memory_busy": 100.0, "used": 4e6, "total": 4e6, "power": 5e3}
#: More GPUs than a node has were made up by what is no such file.
_MOST_GPUS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """One number over the time in which it was read."""

    mean: float
    #: half of the readings were at most so large, 95 of 100 at most so
    p50: float
    p95: float
    max: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """One GPU over the time in which it was watched; None: the file does not say."""

    host: str
    #: nvidia-smi's number on the node, else its UUID or its bus ID, else its place among the lines
    index: str
    name: str
    readings: int
    #: time in which a kernel ran
    utilization_percent: Spread | None = None
    #: time in which memory was read or written
    memory_utilization_percent: Spread | None = None
    memory_used_mib: Spread | None = None
    memory_total_mib: float | None = None
    power_watts: Spread | None = None
    #: share of the readings below IDLE_BELOW_PERCENT
    idle_share: float | None = None


class _Count:
    """Numbers, counted by steps of one size."""

    def __init__(self, step: float) -> None:
        self._step = step
        self._sum = 0.0
        self._max = 0.0
        self.number = 0
        self._steps: collections.Counter[int] = collections.Counter()

    def add(self, value: float) -> None:
        self.number += 1
        self._sum += value
        self._max = max(self._max, value)
        self._steps[round(value / self._step)] += 1

    def share_below(self, limit: float) -> float | None:
        if not self.number:
            return None
        below = sum(n for step, n in self._steps.items() if step * self._step < limit)
        return below / self.number

    def spread(self) -> Spread | None:
        if not self.number:
            return None
        return Spread(
            mean=self._sum / self.number,
            p50=min(self._quantile(0.5), self._max),
            p95=min(self._quantile(0.95), self._max),
            max=self._max,
        )

    def _quantile(self, share: float) -> float:
        wanted, seen = math.ceil(share * self.number), 0
        for step in sorted(self._steps):
            seen += self._steps[step]
            if seen >= wanted:
                return step * self._step
        raise AssertionError("all readings were counted")


class _Gpu:
    """What was read of one GPU."""

    def __init__(self) -> None:
        self.name = ""
        self.total: float | None = None
        self.readings = 0
        self.counts = {
            "busy": _Count(1.0),
            "memory_busy": _Count(1.0),
            "used": _Count(_MEMORY_STEP_MIB),
            "power": _Count(1.0),
        }

    def figures(self, host: str, index: str) -> Figures:
        return Figures(
            host=host,
            index=index,
            name=self.name,
            readings=self.readings,
            utilization_percent=self.counts["busy"].spread(),
            memory_utilization_percent=self.counts["memory_busy"].spread(),
            memory_used_mib=self.counts["used"].spread(),
            memory_total_mib=self.total,
            power_watts=self.counts["power"].spread(),
            idle_share=self.counts["busy"].share_below(IDLE_BELOW_PERCENT),
        )


class Reader:
    """Counts one file, line by line; a line that is something else is left out."""

    def __init__(self) -> None:
        self._head: list[tuple[str, str]] = []
        self._spaced = False
        self._gpus: dict[str, _Gpu] = {}
        self._moment = ""
        self._place = 0

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._line(line.strip())

    def figures(self, host: str) -> list[Figures]:
        """Return each GPU that was read, in the order in which they were met."""
        return [gpu.figures(host, index) for index, gpu in self._gpus.items()]

    def _line(self, line: str) -> None:
        # dmon's second line has the units, and both come again every few lines.
        if line.startswith("#"):
            head = [(_COLUMNS.get(word.lower(), ""), "") for word in line[1:].split()]
            if any(what for what, _ in head):
                self._head, self._spaced = head, True
            return
        words = line.split() if self._spaced else [word.strip(' "') for word in line.split(",")]
        if "," in line and (head := _csv_head(words)):
            # Another attempt, or another run of nvidia-smi, goes on in the same file.
            self._head, self._spaced = head, False
            return
        if not self._head or len(words) != len(self._head):
            return
        self._reading(
            {what: (word, unit) for (what, unit), word in zip(self._head, words, strict=True)}
        )

    def _reading(self, said: Mapping[str, tuple[str, str]]) -> None:
        found = {what: _number(what, *said[what]) for what in _MOST if what in said}
        if all(number is None for number in found.values()):
            return
        key = self._key(said)
        gpu = self._gpus.get(key)
        if gpu is None:
            if len(self._gpus) >= _MOST_GPUS:
                return
            gpu = self._gpus[key] = _Gpu()
        gpu.readings += 1
        gpu.name = gpu.name or said.get("name", ("", ""))[0]
        gpu.total = found.pop("total", None) or gpu.total
        for what, number in found.items():
            if number is not None:
                gpu.counts[what].add(number)

    def _key(self, said: Mapping[str, tuple[str, str]]) -> str:
        for what in ("index", "uuid", "bus"):
            if what in said:
                return said[what][0]
        # Lines of one moment are the node's GPUs, always in the same order. A query takes some
        # milliseconds, so their stamps agree in the seconds only.
        moment = said.get("timestamp", ("", ""))[0].partition(".")[0]
        self._place = self._place + 1 if moment and moment == self._moment else 0
        self._moment = moment
        return str(self._place)


def _csv_head(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return what each column says, and its unit; empty where the words are no head."""
    head = []
    for word in words:
        found = _HEAD_WORD.fullmatch(word)
        if found is None:
            return []
        head.append((_COLUMNS.get(found[1].lower(), ""), found[2] or ""))
    named = [what for what, _ in head if what]
    return head if any(what in _MOST for what in named) else []


def _number(what: str, word: str, unit: str) -> float | None:
    """Read `45 %`, `95830 MiB`, `210.34 W`, `45`; None for `[N/A]`, `[Not Supported]`, `-`."""
    found = _NUMBER.fullmatch(word)
    if found is None:
        return None
    value = float(found[1])
    if what in ("used", "total"):
        factor = _MIB.get(found[2] or unit)
        if factor is None:
            return None
        value *= factor
    return value if value <= _MOST[what] else None


def mean_utilization(figures: Iterable[Figures]) -> float | None:
    """Return the share of time in which these GPUs were busy, each by its readings."""
    known = [
        (one.utilization_percent.mean, one.readings)
        for one in figures
        if one.utilization_percent is not None
    ]
    weight = sum(readings for _, readings in known)
    return sum(mean * readings for mean, readings in known) / weight / 100.0 if weight else None
