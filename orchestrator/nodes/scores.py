"""From the ends of attempts, the speeds of repeats and slow ranks to the score of each node."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from orchestrator import jobs
from orchestrator.nodes.records import End, Node, Repeat, Straggler
from orchestrator.scaling import regression

#: These causes are faults of a node.
NODE_CAUSES = frozenset({"node_fail", "device_fault"})
#: These may be faults of a node, of the program or of the site. They count if the same job
#: completed more often on other nodes than it failed there in this way.
POSSIBLE_CAUSES = frozenset(
    {
        *("device_error", "no_device", "launch_failed", "io_error", "preflight"),
        *("nccl_error", "nccl_timeout", "gloo_timeout", "peer_lost", "rendezvous", "network"),
    }
)
#: A job that has failed so often on other nodes, and completed there less often, breaks nodes.
_BREAKS_NODES = 3
#: Repeats that are slower than those on other nodes by at least this share are slow.
SLOW = 0.1

_Key: TypeAlias = tuple[str, str]


@dataclasses.dataclass
class _Record:
    """What is known about a node so far."""

    score: float = 0.0
    failures: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    slow_runs: int = 0
    completed: int = 0
    other: int = 0
    last_seen_at: datetime.datetime | None = None
    last_problem_at: datetime.datetime | None = None
    last_problem_row: int | None = None

    def see(self, at: datetime.datetime) -> None:
        self.last_seen_at = at if self.last_seen_at is None else max(at, self.last_seen_at)

    def add_problem(self, weight: float, at: datetime.datetime, job_row: int) -> None:
        self.score += weight
        if self.last_problem_at is None or at > self.last_problem_at:
            self.last_problem_at, self.last_problem_row = at, job_row


def assess(
    ends: Iterable[End],
    repeats: Iterable[Repeat],
    stragglers: Iterable[Straggler] = (),
    *,
    hosts_of: Callable[[str], Sequence[str]],
    half_life: datetime.timedelta,
    now: datetime.datetime,
) -> list[Node]:
    """Return the nodes on which attempts ended, those with the highest score first.

    hosts_of: returns the names of a node list.
    """
    records: dict[_Key, _Record] = collections.defaultdict(_Record)

    def weight(at: datetime.datetime, suspects: int) -> float:
        # A time in the future was written by a wrong clock.
        age = max(now - at, datetime.timedelta())
        return float(0.5 ** (age / half_life)) / suspects

    expanded = [(end, tuple(hosts_of(end.node_list))) for end in ends]
    totals = _Totals(expanded)
    for end, hosts in expanded:
        cause = cause_of(end)
        suspects = _suspects(end, cause, hosts, totals)
        for host in hosts:
            record = records[end.cluster, host]
            record.see(end.at)
            if end.state is jobs.JobState.COMPLETED:
                record.completed += end.count
            elif host in suspects:
                record.failures[cause] += end.count
                record.add_problem(weight(end.at, len(suspects)) * end.count, end.at, end.job_row)
            else:
                record.other += end.count
    for host, repeat, suspects_count in _slow_runs(repeats, hosts_of):
        record = records[repeat.cluster, host]
        record.slow_runs += 1
        record.see(repeat.at)
        record.add_problem(weight(repeat.at, suspects_count), repeat.at, repeat.job_row)
    for straggler in stragglers:
        for host in hosts_of(straggler.node_list):
            if _names(straggler.sentence, host):
                record = records[straggler.cluster, host]
                record.slow_runs += 1
                record.see(straggler.at)
                record.add_problem(weight(straggler.at, 1), straggler.at, straggler.job_row)
    nodes = [
        Node(
            cluster=cluster,
            name=name,
            **{**vars(record), "failures": dict(record.failures.most_common())},
        )
        for (cluster, name), record in records.items()
    ]
    return sorted(nodes, key=lambda node: (-node.score, -node.completed, node.cluster, node.name))


def cause_of(end: End) -> str:
    """Return the cause of a failed attempt; "": not known."""
    if end.finding is not None:
        return end.finding.partition(":")[0]
    # Slurm requeues such a job by itself, and no cause is stored.
    lost = (jobs.JobState.NODE_FAIL, jobs.JobState.BOOT_FAIL)
    return "node_fail" if end.state in lost else ""


class _Totals:
    """How often each job completed and failed, in all and on each node."""

    def __init__(self, ends: Iterable[tuple[End, Sequence[str]]]) -> None:
        self._counts: collections.Counter[tuple[str, ...]] = collections.Counter()
        for end, hosts in ends:
            kind = "" if end.state is jobs.JobState.COMPLETED else cause_of(end) or "unknown"
            for host in ("", *hosts):
                self._counts[end.cluster, end.name, kind, host] += end.count

    def elsewhere(self, end: End, kind: str, host: str) -> int:
        """Count the ends of this kind, a cause or "" for completed, of the job on other nodes."""
        counts, job = self._counts, (end.cluster, end.name, kind)
        return counts[(*job, "")] - counts[(*job, host)]


def _suspects(end: End, cause: str, hosts: Sequence[str], totals: _Totals) -> Sequence[str]:
    """Return the nodes that may be at fault; none: the cause is not one of nodes."""
    if cause not in NODE_CAUSES and cause not in POSSIBLE_CAUSES:
        return ()
    named = [host for host in hosts if _names(end.finding or "", host)]
    suspects = []
    for host in named or hosts:
        completed, failed = totals.elsewhere(end, "", host), totals.elsewhere(end, cause, host)
        if cause in NODE_CAUSES:
            is_suspect = failed < _BREAKS_NODES or completed >= failed
        else:
            is_suspect = completed > failed
        suspects += [host] if is_suspect else []
    return suspects


def _names(sentence: str, host: str) -> bool:
    """Return whether a sentence contains the name of the host, or its full domain name."""
    # Compiling a pattern for each node of many failures would take seconds.
    pattern = rf"(?<![\w.-]){re.escape(host)}(?![\w-])"
    return host in sentence and re.search(pattern, sentence) is not None


def _slow_runs(
    repeats: Iterable[Repeat], hosts_of: Callable[[str], Sequence[str]]
) -> Iterable[tuple[str, Repeat, int]]:
    """Yield each node of slow repeats, the repeat, and the number of its nodes.

    A node is slow if the repeats on it are significantly slower than those on other nodes.
    """
    groups: dict[tuple[object, ...], list[tuple[Repeat, Sequence[str]]]] = {}
    for repeat in repeats:
        hosts = hosts_of(repeat.node_list)
        groups.setdefault((repeat.cluster, *repeat.key), []).append((repeat, hosts))
    for group in groups.values():
        slow: dict[str, list[Repeat]] = {}
        for host in dict.fromkeys(host for _, hosts in group for host in hosts):
            here = [repeat for repeat, hosts in group if host in hosts]
            elsewhere = [repeat for repeat, hosts in group if host not in hosts]
            if elsewhere and _are_slower(here, elsewhere):
                slow[host] = here
        for host, runs in slow.items():
            for repeat in runs:
                yield host, repeat, sum(repeat in others for others in slow.values())


def _are_slower(repeats: Sequence[Repeat], others: Sequence[Repeat]) -> bool:
    compared = ([each.throughput for each in group] for group in (repeats, others))
    return regression.compare(*compared, threshold=SLOW).result == "slower"
