"""Records of sweeps: the [sweep] table, points, submissions, and what the database stores."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from orchestrator import jobs
from orchestrator.toml.key_paths import KeyPath

#: The key of an axis that sets resources.nodes and resources.gpus_per_node.
GPUS = ("gpus",)


class InvalidError(ValueError):
    """A value of [sweep] is invalid; the message says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A key of the spec that a point sets."""

    #: ("args", "base_lr"), or GPUS
    path: tuple[str, ...]
    value: jobs.ArgumentValue
    #: where it is in the file, ("sweep", "axes", "args.base_lr", 1)
    at: KeyPath


#: What a point sets, in the order of the axes.
Settings: TypeAlias = tuple[Setting, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis:
    """A key and its values, or a distribution: `{ log_uniform = [1e-4, 1e-1] }`."""

    path: tuple[str, ...]
    #: where it is in the file
    at: KeyPath
    #: uniform, log_uniform, integers, choice; "": all values
    draw: str = ""
    #: of a distribution the bounds, both included; of choice the values to choose from
    values: tuple[jobs.ArgumentValue, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """`[sweep]`: many jobs from one spec, one per point."""

    #: grid: all combinations; zip: the axes in parallel; list: the points as written; random:
    #: draws; strong: more GPUs, same global batch; weak: more GPUs, same batch per GPU; batch and
    #: workers: one argument; required
    kind: Literal["grid", "zip", "list", "random", "strong", "weak", "batch", "workers"] = "grid"
    #: random: number of points
    samples: int | None = None
    #: random: equal seeds draw equal points
    seed: int = 0
    #: strong and weak: total GPUs of each size
    gpus: tuple[int, ...] = ()
    #: strong and weak: nodes of each size, each as in `[resources]`
    nodes: tuple[int, ...] = ()
    #: GPUs per full node; default: those of the partition, else resources.gpus_per_node
    gpus_per_node: int | None = None
    #: strong: samples per step over all GPUs; default: the argument's value in `[args]`
    batch_size: int | None = None
    #: weak: samples per step on each GPU; default: the argument's value in `[args]`
    per_device_batch_size: int | None = None
    #: batch: values of batch_argument
    batch_sizes: tuple[int, ...] = ()
    #: the program's argument for the batch; default: "per_device_batch_size" for weak, else
    #: "batch_size"
    batch_argument: str | None = None
    #: what that argument counts; default: "gpu" for weak, else "global"
    batch_argument_of: Literal["global", "gpu"] | None = None
    #: workers: values of workers_argument
    workers: tuple[int, ...] = ()
    #: the program's argument for the data loader's processes
    workers_argument: str = "num_workers"
    #: runs of each point
    repeats: int = 1
    #: maximum number of points that run at the same time
    max_running: int | None = None
    #: the other points start only after those with the fewest ranks completed
    baseline_first: bool = False
    #: a sweep that requests more GPU-hours is refused
    max_gpu_hours: float | int | None = None
    #: keys that vary and their values, `args.lr = [0.1, 0.01]`; random: values or a distribution,
    #: `{ log_uniform = [1e-4, 1e-1] }`, uniform, integers or choice
    axes: tuple[Axis, ...] = ()
    #: list: the points, `[{ args.lr = 0.1 }]`
    points: tuple[Settings, ...] = ()
    #: additional points, in the same form
    include: tuple[Settings, ...] = ()
    #: points with all values of an entry are left out, except those of include
    exclude: tuple[Settings, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """What points share that differ only in their arguments."""

    #: hash of the job without arguments
    key: str
    #: JSON of the job, with the arguments of `[args]`
    spec: str
    #: of one point; None: it has no known time limit
    gpu_hours: float | None
    node_hours: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredPoint:
    """A point as the database has it; `points_of` makes a Point of it."""

    #: from 1, in the order of the sweep
    number: int
    #: "base_lr0.1-gpus8-r2-9f86d081"; does not depend on the other points
    name: str
    #: hash of its changes and its repeat: 12 hexadecimal digits
    identity: str
    shape: Shape
    #: from 1
    repeat: int
    #: what the sweep varies, by dotted key: {"gpus": 8, "args.base_lr": 0.1}
    settings: Mapping[str, jobs.ArgumentValue]
    #: the resulting keys of the spec: {"resources.nodes": 2, ...}
    changes: Mapping[str, jobs.ArgumentValue]
    #: its newest job; None: not submitted yet
    job: jobs.Job | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point(StoredPoint):
    """A point with the spec of its job."""

    #: 0: not stored yet
    number: int = 0
    job: jobs.Job | None = None
    spec: jobs.JobSpec

    @property
    def job_row(self) -> int | None:
        return None if self.job is None else self.job.row


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResourceTotals:
    """Resources that points request, if each of them runs until its time limit."""

    points: int = 0
    gpu_hours: float = 0.0
    node_hours: float = 0.0
    #: the hours leave these out
    points_without_time_limit: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """All points of a sweep, checked."""

    #: of its jobs
    name: str
    table: Table
    #: the merged spec, by table and key
    document: Mapping[str, Any]
    #: all points once before any is repeated
    points: tuple[Point, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """One sbatch: a job array, or for one point a plain job."""

    spec: jobs.JobSpec
    #: of array task 0, 1, ...
    points: tuple[Point, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredSweep:
    """A sweep in the database, without its points."""

    #: `@3`
    row: int
    name: str
    kind: str
    #: cancelled: no more points are submitted
    state: Literal["open", "cancelled"]
    cluster: str
    scheduler: Literal["slurm", "local"]
    #: name of the profile
    profile: str
    #: its file
    source: str
    #: where it was submitted
    folder: str
    max_running: int | None
    created_at: datetime.datetime
    #: the other sizes start only after the smallest size completed
    baseline_first: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointGroup:
    """Points with the same state and reason."""

    points: int
    #: None: not submitted yet
    state: jobs.JobState | None
    reason: str | None
    cause: str | None
    exit_code: int | None
    exit_signal: int | None
    #: not submitted because of a submit limit; submitted automatically
    is_deferred: bool
    #: a recovery rule may continue them after a failure
    recovers: bool = False

    @property
    def is_over(self) -> bool:
        """Whether they were submitted, have ended, and no recovery rule may continue them."""
        has_ended = self.state in jobs.TERMINAL - {jobs.JobState.NOT_SUBMITTED}
        return has_ended and (not self.recovers or self.state is jobs.JobState.COMPLETED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prerequisites:
    """What a submission of a sweep depends on."""

    #: IDs of jobs that must have ended, and of jobs that must have completed
    after_any: tuple[str, ...] = ()
    after_ok: tuple[str, ...] = ()
    #: points of the baseline that are not in Slurm yet, and that failed
    unsent: int = 0
    failed: int = 0

    @property
    def dependency(self) -> str:
        """The value of sbatch's --dependency; "": no dependency."""
        kinds = (("afterok", self.after_ok), ("afterany", self.after_any))
        return ",".join(":".join([kind, *ids]) for kind, ids in kinds if ids)
