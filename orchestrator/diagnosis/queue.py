"""What Slurm tells of a waiting job and of what it waits for: records only. Times are aware."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What a waiting job asks for (`scontrol show job`)."""

    reason: str
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    #: the least that will do
    nodes: int | None = None
    #: none: no limit
    time_limit_seconds: int | None = None
    #: cpu, mem (MiB), node, gres/gpu -> how much, in all
    resources: Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: memory of a node
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
    #: the scheduler's guess
    expected_start: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition's limits (`scontrol show partition`); none: no limit."""

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
    #: whose limits hold for all its jobs
    qos: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limit:
    """One limit of a QOS or an association, and what of it is used (`scontrol show assoc_mgr`)."""

    #: "QOS small", "account proj", "user alice"
    owner: str
    #: GrpTRES, MaxTRESPJ, MaxWallPJ, ... by Slurm's names
    name: str
    #: of a list of resources: cpu, mem, node, gres/gpu; else ""
    resource: str = ""
    allowed: int
    #: none: it is not counted (of a limit for each job)
    used: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reservation:
    """A reservation (`scontrol show reservation`)."""

    name: str
    state: str
    nodes: str | None = None
    begins_at: datetime.datetime | None = None
    ends_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A node that is not as it should be (`sinfo -R`)."""

    name: str
    state: str
    why: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Queue:
    """All that was asked about one waiting job; what was not asked, or not answered, is none."""

    request: Request | None = None
    partition: Partition | None = None
    limits: tuple[Limit, ...] = ()
    reservation: Reservation | None = None
    #: those it names, or that its reason names, and that are not available
    nodes: tuple[Node, ...] = ()
    #: jobs of its partition that may start and come first
    before: int | None = None
    #: what Slurm said instead of an answer
    error: str = ""
