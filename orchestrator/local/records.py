"""Records of this machine's jobs; their field names are the format of the files on disk."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from orchestrator.jobs import JobState
from orchestrator.local.processes import Identity

T = typing.TypeVar("T")
#: States of entries in queue/; other entries there are on their way to ended/.
LIVE = frozenset({JobState.PENDING, JobState.RUNNING})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A submission: all that the runner needs to start one of its tasks."""

    token: str
    #: NAME.TOKEN
    name: str
    script: str
    run_dir: str
    #: working directory of the script
    folder: str
    environ: Mapping[str, str]
    cpus_per_task: int | None
    signal_seconds: int | None
    #: between TERM and KILL
    kill_wait_seconds: int
    slots_are_gpus: bool
    #: number of slots that a task needs, and the slots that it may get
    slots: int
    devices: tuple[str, ...]
    #: from the start of the task; None: no limit
    time_limit_seconds: int | None
    may_requeue: bool
    #: array tasks; None: not an array
    tasks: tuple[int, ...] | None = None
    #: array tasks that may run at a time
    most_at_once: int | None = None
    #: like sbatch's --dependency, with local job IDs; "": none
    dependency: str = ""
    #: of the script
    arguments: tuple[str, ...] = ()
    #: `local-NUMBER`, assigned when the request is accepted
    number: int = 0
    #: the script's; None: the runner's, 077, as in earlier versions
    umask: int | None = None

    def entry_fields(self, task: int | None) -> dict[str, Any]:
        """Return the fields of a task's entry that never change."""
        index = 0 if self.tasks is None or task is None else self.tasks.index(task)
        same = (
            *("number", "token", "name", "slots", "devices", "most_at_once"),
            *("time_limit_seconds", "may_requeue", "dependency"),
        )
        return {
            **{name: getattr(self, name) for name in same},
            "task": task,
            "raw_number": self.number + index,
            "cpus": self.cpus_per_task,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    state: JobState
    reason: str | None
    exit_code: int
    exit_signal: int
    started_at: float | None
    ended_at: float
    #: of all its processes, and the memory of the largest one (getrusage)
    cpu_seconds: float | None = None
    largest_process_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """The current state of a job or array task. Times are epoch seconds."""

    number: int
    task: int | None
    #: SLURM_JOB_ID of this task
    raw_number: int
    token: str
    #: NAME.TOKEN
    name: str
    #: the machine to which it belongs
    host: str
    slots: int
    devices: tuple[str, ...]
    most_at_once: int | None
    time_limit_seconds: int | None
    may_requeue: bool
    stdout_path: str
    stderr_path: str | None
    submitted_at: float
    #: gives its position in the queue
    queued_at: float
    state: JobState = JobState.PENDING
    held: bool = False
    restart_count: int = 0
    #: the slots that it has
    given: tuple[str, ...] = ()
    started_at: float | None = None
    keeper: Identity | None = None
    runner: Identity | None = None
    #: request of the user to the runner: "", cancel, requeue, hold (requeue and hold); the name is
    #: a key of files
    wish: str = ""
    #: the attempts that have ended, oldest first
    ended: tuple[Ended, ...] = ()
    dependency: str = ""
    cpus: int | None = None
    #: why the script has not started although the job has its slots
    note: str = ""

    @property
    def key(self) -> str:
        return str(self.number) if self.task is None else f"{self.number}_{self.task}"

    @property
    def job_id(self) -> str:
        return f"local-{self.key}"

    @property
    def mark(self) -> str:
        """Return the value that identifies this attempt in the environment of its processes."""
        return f"{self.token}.{self.task or 0}.{self.restart_count}"


def parse(record: type[T], data: Mapping[str, Any]) -> T:
    """Return the record with fields of the declared types; raises ValueError or TypeError.

    A wrong type is never passed on: the script's shell would evaluate text in place of a number.
    Unknown fields are ignored: a running job's runner may read files of a newer version.
    """
    hints = typing.get_type_hints(record)
    known = {name: value for name, value in data.items() if name in hints}
    return record(**{name: _convert(name, hints[name], value) for name, value in known.items()})


def _convert(name: str, declared: Any, value: Any) -> Any:
    kind, parameters = typing.get_origin(declared), typing.get_args(declared)
    if kind is types.UnionType:
        return None if value is None else _convert(name, parameters[0], value)
    if kind is tuple and isinstance(value, list):
        return tuple(_convert(name, parameters[0], item) for item in value)
    if kind is collections.abc.Mapping and isinstance(value, dict):
        return {key: _convert(name, parameters[1], item) for key, item in value.items()}
    if dataclasses.is_dataclass(declared) and isinstance(value, dict):
        return parse(typing.cast(type, declared), value)
    if declared is float and type(value) in (int, float) and math.isfinite(value):
        return value
    if isinstance(declared, type) and issubclass(declared, enum.StrEnum):
        return declared(value)
    if kind is None and declared is not float and type(value) is declared:
        return value
    raise ValueError(f"{name}: invalid value {value!r}")
