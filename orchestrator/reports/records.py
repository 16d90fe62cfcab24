"""Measurements of runs, and the report made of them."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import itertools
import statistics
from collections.abc import Mapping

from orchestrator import scaling

#: What sizes count: GPUs, ranks if there are no GPUs, or nodes.
UNITS = ("gpus", "ranks", "nodes")

#: Squares and products of numbers beyond these overflow.
SMALLEST, LARGEST = 1e-30, 1e30


def is_plausible(value: float) -> bool:
    """Return whether a number can be a measurement: zero can, NaN cannot."""
    return value == 0.0 or SMALLEST <= abs(value) <= LARGEST


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement(scaling.Run):
    #: the job's name and ID, or the line of a file
    name: str = ""
    #: more than `size` if the job had whole nodes; None: unknown
    gpus_allocated: int | None = None
    nodes: int | None = None
    #: of training without evaluation: median
    epoch_seconds: float | None = None
    #: of the whole training
    total_seconds: float | None = None
    #: share of the time in which the slowest rank waited for data
    data_wait_share: float | None = None
    #: peak of each rank
    memory_bytes: tuple[float, ...] = ()
    #: mean share of the GPUs
    utilisation: float | None = None
    #: final share on validation data
    accuracy: float | None = None
    #: seconds of a step by part: data, forward, ...
    step_seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    #: where the throughput comes from: jsonl (measured by the trainer), log:PATTERN, or file
    source: str = "file"
    #: what was left out as warm-up; empty: unknown
    warm_up: str = ""
    #: in Slurm's form, `n[1-2]`
    node_list: str = ""
    #: how commands name the job; "": none is known, as for a file
    job: str = ""
    #: as in reproduction.Identity; "": not recorded
    code: str = ""
    environment: str = ""
    #: precision, model, mode ...; an empty value matches any
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasurementSet:
    """Measurements of a sweep, of jobs, or of a file."""

    #: of their sizes, one of UNITS
    unit: str
    measurements: tuple[Measurement, ...]
    title: str = ""
    #: where they come from, for people
    source: str = ""
    #: "strong", "weak", or None to infer it from the batches
    scaling: str | None = None
    #: sentences about what is missing
    left_out: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """All repeats of one size of one curve."""

    #: name of the curve
    curve: str
    point: scaling.Point
    #: one of UNITS
    unit: str
    measurements: tuple[Measurement, ...]
    #: outliers among them, which the point leaves out
    left_out: tuple[Measurement, ...]
    #: the row is the baseline of every curve
    shared: bool
    #: gives the time per epoch if it was not measured
    samples_per_epoch: int | None

    def median(self, name: str) -> float | None:
        """Return the median of a field of the measurements; None if it is unknown."""
        known = [value for run in self.measurements if (value := getattr(run, name)) is not None]
        return statistics.median(known) if known else None

    @property
    def charged(self) -> float:
        """The number of GPUs allocated, else the size."""
        if self.unit != "gpus":
            return float(self.point.size)
        return statistics.median(run.gpus_allocated or run.size for run in self.measurements)

    @property
    def epoch_seconds(self) -> float | None:
        measured = self.median("epoch_seconds")
        if measured is None and self.samples_per_epoch is not None:
            return self.samples_per_epoch / self.point.throughput.value
        return measured

    @property
    def gpu_hours_per_epoch(self) -> float | None:
        seconds = self.epoch_seconds
        return None if seconds is None or self.unit != "gpus" else self.charged * seconds / 3600.0

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted({run.nodes for run in self.measurements if run.nodes is not None}))

    @property
    def memory_bytes(self) -> tuple[float, ...]:
        """The peak of each rank over all repeats."""
        each = [run.memory_bytes for run in self.measurements]
        return tuple(map(max, itertools.zip_longest(*each, fillvalue=0.0)))

    @property
    def step_seconds(self) -> Mapping[str, float]:
        """Medians by part."""
        seconds = collections.defaultdict(list)
        for run in self.measurements:
            for part, value in run.step_seconds.items():
                seconds[part].append(value)
        return {part: statistics.median(values) for part, values in seconds.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Runs that differ only in their size."""

    #: "mode=ddp", or a letter if that is long; empty if there is one curve
    name: str
    #: those that differ between curves
    attributes: Mapping[str, str]
    #: one of UNITS
    unit: str
    study: scaling.Study
    rows: tuple[Row, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """A scaling study, ready to be displayed."""

    title: str
    #: one of UNITS
    unit: str
    curves: tuple[Curve, ...]
    #: attributes that are equal in all runs
    common: Mapping[str, str]
    #: sentences about what may mislead
    warnings: tuple[str, ...]
    #: sentences about the method
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Targets:
    """What the report is to find besides the table."""

    #: find the largest size with this efficiency
    efficiency: float = 0.8
    #: find the cheapest size that trains this many epochs in `within_seconds`
    epochs: int | None = None
    #: time limit for `epochs`
    within_seconds: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """A stored baseline, without its measurements."""

    row: int
    name: str
    created_at: datetime.datetime
    #: the jobs, the sweep or the file with its measurements
    source: str
    runs: int
