"""[retry]: the recovery rules of a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

#: a program argument
ArgumentValue: TypeAlias = str | int | float | bool | tuple[str | int | float, ...]

#: Causes after which the same job may succeed: `retry` is yes or maybe in causes.toml.
RETRIED = (
    *("preempted", "node_fail", "device_fault", "address_in_use"),
    *("launch_failed", "io_error", "network", "rendezvous", "peer_lost"),
    *("nccl_timeout", "gloo_timeout", "nccl_error", "device_error", "preflight"),
    *("segfault", "aborted", "killed"),
)
#: Continued from its checkpoint as long as it makes progress.
CONTINUED = "time_limit"
#: Only if `on` names it: the job may still be running, unseen by Slurm.
ASKED_FOR = ("lost",)
#: Causes after which only a changed job can succeed.
CHANGED = (
    *("oom_device", "oom_host", "shared_memory", "disk_quota", "disk_full", "too_many_files"),
    *("deadline", "bad_account", "bad_partition", "bad_qos", "bad_resources"),
    *("no_device", "checkpoint", "diverged"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retry:
    """`[retry]`; default: the profile's, otherwise failed jobs are not retried."""

    #: retries of the whole chain; continuations at the time limit do not count; default: no retries
    max_retries: int | None = None
    #: causes that are retried; default: those after which the same job may succeed, `time_limit`,
    #: and those in `changes`
    on: tuple[str, ...] | None = None
    #: retries by cause, `{ preempted = 50 }`; default: time_limit 20, transient causes 2
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: GPU-hours of the chain after which it is not retried; default: no limit
    gpu_hours: int | None = None
    #: pause before the first retry after a transient cause, doubled each time, in seconds; default:
    #: 60
    backoff_seconds: int | None = None
    #: longest pause before a retry, in seconds; default: 3600
    backoff_max_seconds: int | None = None
    #: failures on a node after which the chain excludes it, unless it is in nodelist; 0: never;
    #: default: 2
    exclude_after: int | None = None
    #: the program's checkpoints, relative to the job's working directory; default:
    #: args.checkpoint_dir, otherwise `checkpoints` in the run folder
    checkpoint_dir: str | None = None
    #: new values of spec keys by cause, `oom_host = { "resources.mem" = "x2" }`
    changes: Mapping[str, Mapping[str, ArgumentValue]] = dataclasses.field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        return bool(self.max_retries)

    def over(self, lower: Retry) -> Retry:
        """Return these rules, completed with those of `lower`."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given = {name: value for name, value in values.items() if value is not None and value != {}}
        return dataclasses.replace(lower, **given)
