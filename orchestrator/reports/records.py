"""What one job showed, and the report that many of them make."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping

from orchestrator import scaling

#: What sizes are counted in: GPUs, ranks where there is no GPU, or nodes.
UNITS = ("gpus", "ranks", "nodes")


#: Numbers beyond these measure nothing, and their products and squares overflow.
SMALLEST, LARGEST = 1e-30, 1e30


def is_plausible(value: float) -> bool:
    """Tell whether a number may be what was measured; zero may, NaN may not."""
    return value == 0.0 or SMALLEST <= abs(value) <= LARGEST


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one job showed: a repeat of one size."""

    #: for people: the job and its name, or the line of a file
    name: str = ""
    #: its size in the unit of the study
    size: int
    #: samples a second over all ranks: median of the windows, or of the epochs
    throughput: float
    #: throughput of each window after the warm-up
    windows: tuple[float, ...] = ()
    #: more than it used where it had a node for itself; none: not known
    gpus_allocated: int | None = None
    nodes: int | None = None
    #: time of an epoch of training, evaluation left out: median
    epoch_seconds: float | None = None
    #: of the whole training
    total_seconds: float | None = None
    #: share of the time in which the slowest rank waited for data
    data_wait_share: float | None = None
    #: the most that was in use, a rank
    memory_bytes: tuple[float, ...] = ()
    #: how busy the GPUs were: mean share
    utilisation: float | None = None
    #: on data that was not trained on, at the end: share
    accuracy: float | None = None
    #: seconds of a step by what they go to: data, forward, ...
    step_seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    #: where the throughput was read: jsonl (the trainer measured it), log:PATTERN (parsed), file
    source: str = "file"
    #: what was left out as warm-up; empty: not known
    warm_up: str = ""
    #: Slurm's form, `n[1-2]`
    node_list: str = ""
    #: what a job has besides its size: precision, model, mode ...; an empty value fits any
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasurementSet:
    """Measurements, and what their sizes count."""

    #: one of UNITS
    unit: str
    measurements: tuple[Measurement, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """All repeats of one size of one curve."""

    point: scaling.Point
    measurements: tuple[Measurement, ...]
    #: those of them that the point leaves out: too far from the others
    left_out: tuple[Measurement, ...]
    #: it is the baseline of all curves, because it fits each of them
    shared: bool
    nodes: tuple[int, ...]
    #: what a run is charged for, in the unit of the study: GPUs allocated, else its size
    charged: float
    epoch_seconds: float | None
    gpu_hours_per_epoch: float | None
    total_seconds: float | None
    data_wait_share: float | None
    memory_bytes: tuple[float, ...]
    utilisation: float | None
    accuracy: float | None
    step_seconds: Mapping[str, float]
    #: as Measurement's, each once
    sources: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """Jobs that differ in their size alone."""

    #: what tells it from the other curves, "mode=ddp"; a letter where that is long; empty where
    #: there is one
    name: str
    #: what it differs in from the other curves
    attributes: Mapping[str, str]
    study: scaling.Study
    rows: tuple[Row, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """A scaling study, ready to be shown."""

    title: str
    #: one of UNITS
    unit: str
    curves: tuple[Curve, ...]
    #: attributes that all jobs have in common
    common: Mapping[str, str]
    #: what a reader has to know before believing the numbers
    warnings: tuple[str, ...]
    #: how the numbers came to be
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Targets:
    """What the reader asked besides."""

    #: the most GPUs that keep it are looked for
    efficiency: float = 0.8
    #: the cheapest way to train so many epochs ...
    epochs: int | None = None
    #: ... within this time
    within_seconds: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """A stored baseline, without its measurements."""

    #: our own number
    row: int
    name: str
    created_at: datetime.datetime
    #: the jobs, the sweep or the file that it was taken from
    source: str
    runs: int
