"""The lease in the store: who acts as the controller, and by which number it is known."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import leases as queries
from orchestrator import errors, jobs

#: There is one: of all who may act on a database, one does.
NAME = "controller"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    """The lease as it was at one moment."""

    #: grows with each new holder
    fence: int
    #: the process that acts; none: nobody does
    holder: jobs.Submitter | None
    #: serve or tick
    command: str
    since: datetime.datetime | None
    renewed_at: datetime.datetime | None
    #: grows with each renewal
    renewals: int
    #: it may be taken over when it was not renewed for so long
    seconds: float
    #: since the last renewal, by the clock of who asks, or the server's where there is one
    age_seconds: float

    @property
    def lapsed(self) -> bool:
        """Return whether it looks as if it was not renewed in time."""
        # Renewed since the one who asks looked at the clock, it is a little less than nothing; what
        # is further ahead was written by a clock that differs.
        return not -self.seconds < self.age_seconds < self.seconds


class LeaseStore:
    """The lease within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    @property
    def one_clock(self) -> bool:
        """Return whether all hosts are told the time by one server."""
        return self._db.get_bind().dialect.name != "sqlite"

    def server_time(self) -> datetime.datetime | None:
        """Return the time on the database's server; None where that is this host's own clock."""
        return queries.server_time(self._db)

    def read(self, here: datetime.datetime) -> Lease | None:
        """Return the lease; None where there never was a controller. `here` is this host's time."""
        row = queries.lease(self._db, NAME)
        return None if row is None else _record(row, queries.now(self._db, here))

    def add(self) -> None:
        """Make the lease, held by nobody."""
        queries.add(self._db, {"name": NAME, "fence": 0, "renewals": 0, "seconds": 0.0})

    def take(
        self,
        seen: Lease,
        me: jobs.Submitter,
        *,
        command: str,
        seconds: float,
        here: datetime.datetime,
    ) -> int | None:
        """Take the lease as it was seen; return its new number, None where it changed since."""
        now = queries.now(self._db, here)
        changes = {
            "fence": seen.fence + 1,
            "host": me.host,
            "boot_id": me.boot_id,
            "pid": me.pid,
            "start_ticks": me.start_ticks,
            "command": command,
            "since": now,
            "renewed_at": now,
            "renewals": seen.renewals + 1,
            "seconds": seconds,
        }
        taken = queries.change(self._db, NAME, seen.fence, seen.renewals, changes)
        return seen.fence + 1 if taken else None

    def renew(self, fence: int, here: datetime.datetime) -> None:
        """Store that the holder lives; raises FencedError where it is another one's."""
        now = queries.now(self._db, here)
        if not queries.renew(self._db, NAME, fence, now):
            raise self._fenced(here)

    def give_back(self, fence: int) -> None:
        """Let it go, if it is still held under this number."""
        nobody = dict.fromkeys(
            ("host", "boot_id", "pid", "start_ticks", "command", "since", "renewed_at")
        )
        queries.change(self._db, NAME, fence, None, nobody)

    def check(self, fence: int) -> None:
        """Raise FencedError where the lease has another number; it keeps its own until the end
        of this transaction.
        """
        if not queries.has_fence(self._db, NAME, fence):
            raise self._fenced(datetime.datetime.now(datetime.UTC))

    def _fenced(self, here: datetime.datetime) -> errors.FencedError:
        lease = self.read(here)
        if lease is None or lease.holder is None:
            return errors.FencedError(
                "Another controller took over meanwhile and has ended; this one does nothing more."
            )
        return errors.FencedError(
            f"Another controller took over: {described(lease)}; this one does nothing more."
        )


def described(lease: Lease) -> str:
    """Return who holds the lease: the command, its process, its host, and since when."""
    if lease.holder is None:
        return "nobody"
    since = "" if lease.since is None else f", since {lease.since.astimezone():%Y-%m-%d %H:%M:%S}"
    return f"`{lease.command}` (process {lease.holder.pid} on {lease.holder.host}{since})"


def _record(row: sa.Row[Any], now: datetime.datetime) -> Lease:
    holder = None
    if row.host is not None:
        holder = jobs.Submitter(
            host=row.host,
            boot_id=row.boot_id or "",
            pid=row.pid or 0,
            start_ticks=row.start_ticks or 0,
        )
    age = float("inf") if row.renewed_at is None else (now - row.renewed_at).total_seconds()
    return Lease(
        fence=row.fence,
        holder=holder,
        command=row.command or "",
        since=row.since,
        renewed_at=row.renewed_at,
        renewals=row.renewals,
        seconds=row.seconds,
        age_seconds=age,
    )
