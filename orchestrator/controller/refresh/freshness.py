"""How fresh the database is, as far as it can tell by itself: Slurm is not asked here."""

from __future__ import annotations

import dataclasses
import datetime
import socket
from pathlib import Path

from db import unit_of_work
from orchestrator import jobs
from orchestrator.controller.session import contexts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Freshness:
    """What is known of the last time that Slurm was asked."""

    #: Slurm was asked now; false: the last answer was recent enough, or nothing is live
    asked: bool = False
    #: last good answer of squeue
    good_at: datetime.datetime | None = None
    #: since when Slurm does not answer; none while it does
    failing_since: datetime.datetime | None = None
    #: what it said
    error: str = ""
    #: when Slurm was last asked, well or not
    tried_at: datetime.datetime | None = None
    #: another process is asking Slurm at this moment
    busy: bool = False
    changed: int = 0
    #: so many jobs were seen to have ended
    ended: int = 0
    #: why sacct did not answer just now; details are filled in when it does
    accounts_error: str = ""


def of(context: contexts.Context, cluster: str) -> Freshness:
    """Return what is known of a cluster's last answers."""
    with context.store.reading() as work:
        state = work.refreshes.get(cluster)
    return Freshness(
        good_at=state.last_good_squeue_at,
        tried_at=state.last_tried_at,
        failing_since=state.failing_since,
        error=state.last_error or "",
    )


def nothing_is_due(context: contexts.Context) -> bool:
    """Return True where a refresh that nobody insists on would ask and send nothing.

    resend.refresh_and_send() finds the same; who calls this first need not load it.
    """
    due = jobs.JobQuery(due=context.clock.now(), limit=1)
    waiting = jobs.JobQuery(deferred=True, limit=1)
    with context.store.reading() as work:
        return not work.jobs.find(due) and not work.jobs.find(waiting)


def drop_dead_claim(work: unit_of_work.UnitOfWork, cluster: str) -> None:
    """Give back the right to ask of a process of this host that is gone.

    One that was killed while it asked gives nothing back, and nobody would ask before its claim
    runs out: a terminal that was closed on `submit --wait` left a running job PENDING for two
    minutes.
    """
    holder = work.refreshes.get(cluster).holder or ""
    host, _, pid = holder.rpartition(":")
    if host == socket.gethostname() and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
        work.refreshes.finish(cluster, holder=holder)
