"""Which nodes jobs should avoid."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from orchestrator import config
from orchestrator.nodes.records import Node


def select(
    nodes: Sequence[Node], settings: config.Nodes, known: Mapping[str, Collection[str]]
) -> list[Node]:
    """Return the nodes, those with the highest scores marked as excluded, with the reason.

    known: the nodes that Slurm has, by cluster. Without them the share of nodes is not limited.
    """
    room = {cluster: _limit(settings, len(names)) for cluster, names in known.items()}
    result = []
    for node in nodes:
        left = room.setdefault(node.cluster, settings.max_excluded)
        excluded, reason = False, ""
        # Of two failures the older one has faded.
        if settings.exclude_after and node.score >= settings.exclude_after - 0.5:
            if node.cluster in known and node.name not in known[node.cluster]:
                reason = "no node of Slurm any more"
            elif left <= 0:
                reason = "limit reached (nodes.max_excluded, nodes.max_excluded_percent)"
            else:
                excluded, reason = True, node.problems
                room[node.cluster] = left - 1
        result.append(dataclasses.replace(node, is_excluded=excluded, reason=reason))
    return result


def _limit(settings: config.Nodes, nodes: int) -> int:
    """Return how many of the nodes of a cluster may be excluded: never all of them."""
    share = max(1, nodes * settings.max_excluded_percent // 100)
    return min(settings.max_excluded, share, nodes - 1)
