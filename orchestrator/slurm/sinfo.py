"""sinfo and sacctmgr: which partitions a cluster has, and which accounts a user."""

from __future__ import annotations

import dataclasses
import re

from orchestrator.slurm import fields

_DELIMITER = "\x1f"
# One line for each kind of node in a partition; %R has no star behind the default one, %P has.
_COLUMNS = ("%P", "%a", "%l", "%D", "%c", "%m", "%G")
_GPU_TYPE = re.compile(r"(?:^|,)gpu:([^:,()]+):\d", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeKind:
    """The nodes of one kind in a partition."""

    partition: str
    #: sbatch takes this partition where none is named
    default: bool
    #: up, down, drain, inact
    availability: str
    #: longest time limit as Slurm prints it; none: no limit
    max_time: str | None
    nodes: int | None
    #: CPUs of a node
    cpus: int | None
    #: memory of a node
    memory_mib: int | None
    #: GPUs of a node; 0: none
    gpus: int
    #: their types, where gres.conf names them
    gpu_types: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Association:
    """An account that a user may charge."""

    account: str
    #: only in this partition; none: in all
    partition: str | None
    #: quality-of-service levels that may be asked for
    qos: tuple[str, ...]


def sinfo_command() -> list[str]:
    """Ask for the partitions that this user may see."""
    return ["sinfo", "-h", "-o", _DELIMITER.join(_COLUMNS)]


def parse_sinfo(text: str) -> list[NodeKind]:
    """Read sinfo's lines; a line that is none of its own is left out."""
    found: list[NodeKind] = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(_DELIMITER)]
        if len(parts) != len(_COLUMNS) or not parts[0]:
            continue
        name, availability, limit, nodes, cpus, memory, gres = parts
        found.append(
            NodeKind(
                partition=name.removesuffix("*"),
                default=name.endswith("*"),
                availability=availability,
                # `1-00:00:00`, `1:00` (a minute), `infinite`, and `n/a` where nothing is set.
                max_time=limit if fields.parse_duration_seconds(limit) is not None else None,
                nodes=fields.parse_count(nodes),
                # Nodes that differ show as `8+`.
                cpus=fields.parse_count(cpus.removesuffix("+")),
                memory_mib=fields.parse_count(memory.removesuffix("+")),
                gpus=fields.parse_gpus(gres) or 0,
                gpu_types=tuple(dict.fromkeys(_GPU_TYPE.findall(gres))),
            )
        )
    return found


def sacctmgr_associations_command(user: str) -> list[str]:
    """Ask which accounts a user has; any user may ask about themselves."""
    return [
        "sacctmgr",
        "-n",
        "-P",
        "show",
        "associations",
        f"user={user}",
        "format=Account,Partition,QOS",
    ]


def parse_sacctmgr_associations(text: str) -> list[Association]:
    """Read sacctmgr's lines `account|partition|qos,qos`."""
    rows = [line.split("|") for line in text.splitlines()]
    return [
        Association(
            account=row[0],
            partition=row[1] or None,
            qos=tuple(name for name in row[2].split(",") if name),
        )
        for row in rows
        if len(row) == 3 and row[0]
    ]
