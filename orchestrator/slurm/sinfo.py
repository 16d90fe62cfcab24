"""sinfo: partitions and nodes."""

from __future__ import annotations

import dataclasses
import re

from orchestrator.slurm import fields

_DELIMITER = "\x1f"
# One line for each kind of node in a partition. %P marks the default partition with a star.
_COLUMNS = ("%P", "%a", "%l", "%D", "%c", "%m", "%G")
COMMAND = ("sinfo", "-h", "-o", _DELIMITER.join(_COLUMNS))
#: List all nodes, also those in hidden partitions: sbatch accepts their names too.
NAMES_COMMAND = ("sinfo", "-h", "-a", "-o", "%N")
_GPU_TYPE = re.compile(r"(?:^|,)gpu:([^:,()]+):\d", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeKind:
    """The nodes of one kind in a partition."""

    partition: str
    #: the default partition
    default: bool
    #: up, down, drain, inact
    availability: str
    #: longest time limit as Slurm prints it; None: no limit
    max_time: str | None
    nodes: int | None
    #: per node
    cpus: int | None
    memory_mib: int | None
    gpus: int
    #: types of the GPUs, if gres.conf names them
    gpu_types: tuple[str, ...]


def parse(text: str) -> list[NodeKind]:
    """Parse sinfo's lines; others are skipped."""
    kinds: list[NodeKind] = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(_DELIMITER)]
        if len(parts) != len(_COLUMNS) or not parts[0]:
            continue
        name, availability, limit, nodes, cpus, memory, gres = parts
        kinds.append(
            NodeKind(
                partition=name.removesuffix("*"),
                default=name.endswith("*"),
                availability=availability,
                # `1-00:00:00`, `1:00` (a minute), `infinite`, or `n/a` if nothing is set.
                max_time=limit if fields.parse_duration_seconds(limit) is not None else None,
                nodes=fields.parse_count(nodes),
                # Different nodes are printed as `8+`.
                cpus=fields.parse_count(cpus.removesuffix("+")),
                memory_mib=fields.parse_count(memory.removesuffix("+")),
                gpus=fields.parse_gpus(gres) or 0,
                gpu_types=tuple(dict.fromkeys(_GPU_TYPE.findall(gres))),
            )
        )
    return kinds


def reasons_command(nodes: str) -> list[str]:
    """List the states of nodes, and why they are unavailable."""
    return ["sinfo", "-h", "-N", "-n", nodes, "-o", _DELIMITER.join(("%N", "%T", "%E"))]


def parse_reasons(text: str) -> list[str]:
    """Return state and reason of each node that has a reason: "n4 is down (Not responding)"."""
    nodes: dict[str, str] = {}
    for line in text.splitlines():
        name, state, reason = [*line.split(_DELIMITER, 2), "", ""][:3]
        if reason.strip() not in ("", "none"):
            state = state.rstrip("*$~#!%@^-+")
            nodes[name] = f"{name} is {state} ({reason.strip()})"
    return list(nodes.values())


def parse_names(text: str) -> list[str]:
    """Return the nodes in lines such as `gpu[01-04]`, each once."""
    names = (name for line in text.split("\n") for name in fields.expand_hosts(line.strip()))
    return list(dict.fromkeys(names))
