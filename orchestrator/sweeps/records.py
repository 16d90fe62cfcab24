"""Records of a sweep: its table, its points, how they are submitted, and what the store has."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from orchestrator import jobs
from orchestrator.toml import key_paths

#: The key of an axis that stands for resources.nodes and resources.gpus_per_node.
GPUS = ("gpus",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One key that a point gives a value."""

    #: of the job spec, ("args", "base_lr"), or GPUS
    path: tuple[str, ...]
    value: jobs.ArgumentValue
    #: where it was written in the file, ("sweep", "axes", "args.base_lr", 1)
    at: key_paths.KeyPath


#: What a point gives values, in the order of the axes.
Settings: TypeAlias = tuple[Setting, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """Values of an axis that are drawn: `{ log_uniform = [1e-4, 1e-1] }`."""

    how: Literal["uniform", "log_uniform", "integers", "choice"]
    #: the least and the largest that may come, both included; of choice all there are
    of: tuple[jobs.ArgumentValue, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis:
    """One key and the values it takes."""

    path: tuple[str, ...]
    #: where it was written
    at: key_paths.KeyPath
    #: one after another; of a drawn axis none
    values: tuple[jobs.ArgumentValue, ...] = ()
    #: none: the values are written down
    draw: Draw | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keys:
    """The plain keys of `[sweep]`."""

    #: grid: all combinations; zip: the axes side by side; list: the points as written; random:
    #: draws; strong: more GPUs for one global batch; weak: more GPUs of one batch each; batch and
    #: workers: one argument
    kind: Literal["grid", "zip", "list", "random", "strong", "weak", "batch", "workers"] = "grid"
    #: of random: how many points
    samples: int | None = None
    #: of random: the same seed draws the same points
    seed: int = 0
    #: of strong and weak: GPUs in all, each a size of the study
    gpus: tuple[int, ...] = ()
    #: the same in nodes, each with what `[resources]` asks of a node
    nodes: tuple[int, ...] = ()
    #: GPUs of a node that is used wholly; left out: the partition's, else resources.gpus_per_node
    gpus_per_node: int | None = None
    #: of strong: samples of a step over all GPUs; left out: the argument's value in `[args]`
    batch_size: int | None = None
    #: of weak: samples of a step on each GPU; left out: the argument's value in `[args]`
    per_device_batch_size: int | None = None
    #: of batch: the values of batch_argument
    batch_sizes: tuple[int, ...] = ()
    #: the program's argument for the batch; left out: of weak "per_device_batch_size", else
    #: "batch_size"
    batch_argument: str | None = None
    #: what that argument counts; left out: of weak "gpu", else "global"
    batch_argument_of: Literal["global", "gpu"] | None = None
    #: of workers: the values of workers_argument
    workers: tuple[int, ...] = ()
    #: the program's argument for the data loader's processes
    workers_argument: str = "num_workers"
    #: each point so often
    repeats: int = 1
    #: the most points that run at a time
    max_running: int | None = None
    #: the points with the fewest ranks go first, and the others only if those end well
    baseline_first: bool = False
    #: nothing is submitted that asks for more
    max_gpu_hours: float | int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table(Keys):
    """`[sweep]`: what is to be varied, and how."""

    #: by key, so that the order in the file says nothing
    axes: tuple[Axis, ...] = ()
    #: of list
    points: tuple[Settings, ...] = ()
    #: further points
    include: tuple[Settings, ...] = ()
    #: points that have all of one entry's values are left out; those of include stay
    exclude: tuple[Settings, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One job of a sweep."""

    #: for people and stable, "base_lr0.1-gpus8-r2-9f86d081"
    name: str
    #: 12 hexadecimal digits of what it changes and its repeat: another point has another one,
    #: whatever else is in the sweep
    identity: str
    #: the same for points that differ in arguments alone
    shape: str
    #: from 1
    repeat: int
    #: what was varied, by dotted key: {"gpus": 8, "args.base_lr": 0.1}
    settings: Mapping[str, jobs.ArgumentValue]
    #: the keys of the spec that it gives a value: {"resources.nodes": 2, ...}
    changes: Mapping[str, jobs.ArgumentValue]
    spec: jobs.JobSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResourceTotals:
    """Resources that jobs request, if each of them runs until its time limit."""

    points: int = 0
    gpu_hours: float = 0.0
    node_hours: float = 0.0
    #: points without a known time limit; the hours leave them out
    points_without_time_limit: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """What points share that differ only in their arguments."""

    #: `Point.shape`
    key: str
    #: JSON of the job, with the arguments that the points begin from
    spec: str
    #: of one point; None: it has no known time limit
    gpu_hours: float | None
    node_hours: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """All points of a sweep, each checked."""

    #: of its jobs
    name: str
    table: Table
    #: what the file and the command line say, by table and key
    document: Mapping[str, Any]
    #: by key
    shapes: Mapping[str, Shape]
    #: every point once before any is repeated: one that is cut short has all of them
    points: tuple[Point, ...]
    totals: ResourceTotals


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one submission may hold."""

    #: MaxArraySize: the largest index of an array is one less
    max_array_size: int
    #: tasks of one submission at the most, where a QOS or an account allows few; none: no limit
    max_tasks: int | None = None
    #: what the arguments of an array's tasks may take of the script; slurmctld refuses one of
    #: 4 MiB (man slurm.conf, max_script_size)
    max_arguments_bytes: int = 3 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """One sbatch: a job array, or of one point a plain job."""

    spec: jobs.JobSpec
    #: of array task 0, 1, ...
    points: tuple[Point, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be submitted, in this order."""

    submissions: tuple[Submission, ...]
    totals: ResourceTotals


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredSweep:
    """A sweep as it was submitted, without its points."""

    #: our own number, `@3`
    row: int
    name: str
    kind: str
    #: cancelled: no more points are submitted
    state: Literal["open", "cancelled"]
    cluster: str
    scheduler: Literal["slurm", "local"]
    #: name of the profile in force
    profile: str
    #: the file that it was read from
    source: str
    #: where it was submitted
    folder: str
    max_running: int | None
    created_at: datetime.datetime


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredPoint:
    """A point of a stored sweep and its newest job; `points_of` makes a Point of it."""

    #: from 1, in the order of the sweep
    number: int
    name: str
    identity: str
    #: key of its shape, and that shape's job as JSON
    shape: str
    shape_spec: str
    repeat: int
    settings: Mapping[str, jobs.ArgumentValue]
    changes: Mapping[str, jobs.ArgumentValue]
    #: None: not submitted yet
    job_row: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointGroup:
    """Points that are in the same state for the same reason."""

    points: int
    #: None: not submitted yet
    state: jobs.JobState | None
    reason: str | None
    cause: str | None
    exit_code: int | None
    exit_signal: int | None
    #: not submitted because of a submit limit; sent automatically
    is_deferred: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class LiveSubmission:
    """A submission of a sweep that Slurm has and that has not ended."""

    #: Slurm's ID of the job or of the whole array
    job_id: str
    #: its tasks that have not ended
    tasks: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaselineGroup:
    """Points of the baseline that have the same job or array and the same state."""

    #: None: nothing was submitted, Slurm does not show it, or it failed and may be recovered
    job_id: str | None
    state: jobs.JobState | None
    points: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prerequisites:
    """What a submission of a sweep depends on."""

    #: job IDs: it starts after all of these ended, and after all of these completed
    after_any: tuple[str, ...] = ()
    after_ok: tuple[str, ...] = ()
    #: points of the baseline that Slurm does not have yet, and that did not complete
    unsent: int = 0
    failed: int = 0

    @property
    def dependency(self) -> str:
        """The value of sbatch's --dependency; "": no dependency."""
        kinds = (("afterok", self.after_ok), ("afterany", self.after_any))
        return ",".join(":".join([kind, *ids]) for kind, ids in kinds if ids)
