"""How recent the stored states are. Slurm is not queried here."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path

from db import unit_of_work
from orchestrator import jobs
from orchestrator.controller.session import contexts
from orchestrator.tracking import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Freshness(records.RefreshState):
    """The stored result of the last refresh, and what this one did."""

    #: Slurm was queried now; false: the last result was recent enough, or nothing is live
    asked: bool = False
    #: another process is querying Slurm
    busy: bool = False
    #: number of jobs with new events
    changed: int = 0
    #: number of jobs whose end was noticed
    ended: int = 0
    #: why sacct failed; details follow when it works again
    sacct_error: str = ""


def of(work: unit_of_work.UnitOfWork, cluster: str) -> Freshness:
    return Freshness(**vars(work.refreshes.get(cluster)))


def nothing_is_due(context: contexts.Context) -> bool:
    """Return whether a refresh that no user insists on would query and submit nothing.

    deferred_jobs.refresh_and_send() finds the same, but imports everything that calls Slurm.
    """
    due = jobs.JobQuery(due=context.clock.now(), limit=1)
    deferred = jobs.JobQuery(deferred=True, limit=1)
    with context.store.reading() as work:
        return not work.jobs.find(due) and not work.jobs.find(deferred)


def drop_dead_claim(work: unit_of_work.UnitOfWork, cluster: str) -> None:
    """Release the claim of a process of this host that has ended.

    A killed process releases nothing, and no other one would query Slurm before the claim expires:
    closing the terminal of `submit --wait` left a running job PENDING for two minutes.
    """
    holder = work.refreshes.get(cluster).holder or ""
    host, _, process = holder.rpartition(":")
    # Behind the dot is the number of a thread.
    pid = process.partition(".")[0]
    if host == socket.gethostname() and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
        work.refreshes.finish(cluster, holder=holder)
