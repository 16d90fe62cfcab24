"""How attempts ended and how fast repeats ran, by nodes, and what follows about each node."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping

from orchestrator import jobs


@dataclasses.dataclass(frozen=True, kw_only=True)
class End:
    """The end of an attempt, or of several that completed on the same nodes."""

    cluster: str
    #: as Slurm writes it: "gpu[01-03]"
    node_list: str
    #: of the sweep, else of the job: attempts with the same name run the same program
    name: str
    state: jobs.JobState
    #: "CAUSE: a sentence", as it was stored; None: it completed, or the cause is not known
    finding: str | None
    #: of the last one
    at: datetime.datetime
    #: row of the (last) job
    job_row: int
    count: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repeat:
    """The newest attempt of a repeat of a point of a sweep, which completed."""

    cluster: str
    node_list: str
    #: repeats with the same key are equal
    key: tuple[object, ...]
    throughput: float
    at: datetime.datetime
    job_row: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Straggler:
    """An attempt of which one rank was slower than the others."""

    cluster: str
    node_list: str
    #: the alert, which names the node of the rank if it is known
    sentence: str
    at: datetime.datetime
    job_row: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    cluster: str
    name: str
    #: failures and slow runs; each counts 1 / number of nodes that may be at fault, and half after
    #: each half-life
    score: float = 0.0
    #: cause -> failed attempts, the most frequent first
    failures: Mapping[str, int] = dataclasses.field(default_factory=dict)
    slow_runs: int = 0
    completed: int = 0
    #: attempts that ended otherwise, such as those with an error of the program
    other: int = 0
    #: when an attempt on it last ended
    last_seen_at: datetime.datetime | None = None
    #: the last failure or slow run, and the row of its job
    last_problem_at: datetime.datetime | None = None
    last_problem_row: int | None = None
    #: whether jobs should avoid it
    is_excluded: bool = False
    #: why it is excluded, or why not in spite of its score; "": its score is too low
    reason: str = ""

    @property
    def problems(self) -> str:
        """Its failures and slow runs: "2 device_fault, 1 slow run"."""
        parts = [f"{count} {cause}" for cause, count in self.failures.items()]
        if self.slow_runs:
            parts.append(f"{self.slow_runs} slow run{'s' if self.slow_runs > 1 else ''}")
        return ", ".join(parts)
