"""What is known about a failed job, and what was decided about it."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Literal

from orchestrator import jobs

#: Kind of the event that says that a folder of the job cannot be seen from this host.
AWAY = "away"


class Action(enum.StrEnum):
    """What follows a failure."""

    #: the same job is queued again
    REQUEUE = "requeue"
    #: a new job continues the work
    CONTINUE = "continue"
    NONE = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailedJob:
    #: a cause of diagnosis, and its title: "a GPU ran out of memory"
    cause: str
    title: str
    #: whether the cause is transient: the same job may or may not succeed next time
    maybe: bool
    spec: jobs.JobSpec
    #: index of the array task
    task: int | None = None
    #: whether somebody asked to cancel the job
    cancelled: bool = False
    #: of its newest checkpoint, else the highest one in its metrics; None: both are unknown
    step: int | None = None
    #: whether it wrote a checkpoint
    has_checkpoint: bool = False
    #: of the whole chain
    gpu_hours: float = 0.0
    #: failures by host, of the whole chain; empty if no node is at fault
    node_failures: Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: nodes of the attempt that jobs are submitted without (`[nodes]`)
    avoided_nodes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What follows a failure, and why."""

    action: Action
    cause: str
    #: a key of [retry] or a few words: the reason for the decision
    rule: str
    #: a plain sentence: the reason
    detail: str
    #: earliest time for the action; None: there is no action
    due_at: datetime.datetime | None = None
    #: keys of the spec and their new values
    changes: Mapping[str, jobs.ArgumentValue] = dataclasses.field(default_factory=dict)
    step: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredDecision(Decision):
    """The decision about one attempt of a job, and its outcome, which `detail` says too."""

    id: int
    job_row: int
    attempt: int
    #: refused: the action was not taken
    state: Literal["planned", "done", "refused"]
    decided_at: datetime.datetime
    #: the job that continues the work
    next_job_row: int | None = None
