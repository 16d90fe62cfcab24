"""What Slurm reports about a pending job, and about what it is pending for. Times are aware."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class PendingRequest:
    """What a pending job requests (`scontrol show job`)."""

    reason: str
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    #: the minimum
    nodes: int | None = None
    #: none: no limit
    time_limit_seconds: int | None = None
    #: totals of cpu, mem (MiB), node, gres/gpu
    resources: Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: per node
    memory_mib: int | None = None
    features: str | None = None
    node_list: str | None = None
    #: as Slurm prints it: "afterok:19(failed)"
    dependency: str | None = None
    reservation: str | None = None
    licenses: str | None = None
    priority: int | None = None
    eligible_at: datetime.datetime | None = None
    deadline: datetime.datetime | None = None
    #: the scheduler's estimate
    expected_start: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    """The limits of a partition (`scontrol show partition`); None: no limit."""

    name: str
    #: UP, DOWN, DRAIN, INACTIVE
    state: str
    nodes: int | None = None
    cpus: int | None = None
    max_nodes: int | None = None
    max_time_seconds: int | None = None
    max_memory_mib: int | None = None
    accounts: str | None = None
    allowed_qos: str | None = None
    #: the partition QOS, whose limits apply to all its jobs
    qos: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limit:
    """A limit of a QOS or an association, and its usage (`scontrol show assoc_mgr`)."""

    #: "QOS small", "account proj", "user alice"
    owner: str
    #: Slurm's name: GrpTRES, MaxTRESPJ, MaxWallPJ, ...
    name: str
    #: cpu, mem, node, gres/gpu; "" if the limit is not about a resource
    resource: str = ""
    allowed: int
    #: None: there is no usage, as for limits per job
    used: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reservation:
    """A reservation (`scontrol show reservation`)."""

    state: str
    begins_at: datetime.datetime | None = None
    ends_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PendingFacts:
    """What Slurm was asked about a pending job; None: not asked, or no answer."""

    request: PendingRequest | None = None
    partition: Partition | None = None
    limits: tuple[Limit, ...] = ()
    reservation: Reservation | None = None
    #: "n4 is down (Not responding)": those that the job or its reason names (`sinfo -N`)
    unavailable_nodes: tuple[str, ...] = ()
    #: eligible jobs in its partition that are ahead of it
    before: int | None = None
    #: error message of Slurm's command
    error: str = ""
