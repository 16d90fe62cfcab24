"""The request's rules for what follows a failure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from orchestrator.jobs.arguments import ArgumentValue

#: Causes after which the job as it stands may do better: diagnosis says YES or MAYBE of them.
RETRIED = (
    *("preempted", "node_fail", "device_fault", "address_in_use"),
    *("launch_failed", "io_error", "network", "rendezvous", "peer_lost"),
    *("nccl_timeout", "gloo_timeout", "nccl_error", "device_error"),
    *("segfault", "aborted", "killed"),
)
#: Goes on from its checkpoint, for as long as it comes further.
CONTINUED = "time_limit"
#: Only where `on` names it: the job may run on, unseen by Slurm.
ASKED_FOR = ("lost",)
#: Causes after which only a job that is asked for otherwise can do better.
CHANGED = (
    *("oom_device", "oom_host", "shared_memory", "disk_quota", "disk_full", "too_many_files"),
    *("deadline", "bad_account", "bad_partition", "bad_qos", "bad_resources"),
    *("no_device", "checkpoint", "diverged"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retry:
    """`[retry]`: what follows a failure; left out: the profile's, else nothing follows."""

    #: further starts after failures, over the whole chain; 0: none. Goings-on at the time limit do
    #: not count
    max_retries: int | None = None
    #: words of `explain`; left out: all that may do better as they stand, the time limit, and those
    #: that `changes` names
    on: tuple[str, ...] | None = None
    #: most starts after one cause, by its word. time_limit: 20; causes that come and go: 2
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: GPU-hours after which the chain gets no further start; left out: no limit
    gpu_hours: int | None = None
    #: pause before the first start after a cause that comes and goes, twice as long each time. 60
    backoff_seconds: int | None = None
    #: the longest pause. 3600
    backoff_max_seconds: int | None = None
    #: failures of a node after which the chain keeps away from it; 0: never. 2
    exclude_after: int | None = None
    #: folder of the program's checkpoints, where it is neither args.checkpoint_dir nor
    #: `checkpoints` in the run folder
    checkpoint_dir: str | None = None
    #: by cause: what is asked for otherwise, "resources.mem" = "x2"
    changes: Mapping[str, Mapping[str, ArgumentValue]] = dataclasses.field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        """Whether anything may follow a failure."""
        return bool(self.max_retries)

    def over(self, lower: Retry) -> Retry:
        """Return these rules with what they leave open taken from others."""
        said = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given = {name: value for name, value in said.items() if value is not None and value != {}}
        return dataclasses.replace(lower, **given)
