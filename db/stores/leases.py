"""The lease of the controller."""

from __future__ import annotations

import datetime
from typing import Any

import sqlalchemy as sa

from db.stores import base
from db.tables.service import LEASES
from orchestrator import jobs
from orchestrator.jobs import leases

_LEASE = LEASES.c
#: There is one lease: only one process acts as the controller of a database.
_NAME = "controller"


class LeaseStore(base.Store):
    @property
    def one_clock(self) -> bool:
        """Whether all hosts use the clock of one database server."""
        return self._connection.dialect.name != "sqlite"

    def server_time(self) -> datetime.datetime | None:
        """Return the time of the database server; None if its clock is the clock of this host."""
        if not self.one_clock:
            return None
        server, client = sa.func.inet_server_addr(), sa.func.inet_client_addr()
        # Over a Unix socket neither has an address.
        time = sa.case((server != client, sa.func.clock_timestamp()))
        return self._connection.scalar(sa.select(time))

    def read(self, here: datetime.datetime) -> leases.Lease | None:
        """Return the lease, None if there never was a controller; `here` is the time here."""
        row = self._connection.execute(sa.select(LEASES).where(_LEASE.name == _NAME)).first()
        if row is None:
            return None
        fields = {name: value for name, value in row._mapping.items() if name != "name"}
        holder = {name: fields.pop(name) for name in ("host", "boot_id", "pid", "start_ticks")}
        age = float("inf")
        if row.renewed_at is not None:
            age = (self._now(here) - row.renewed_at).total_seconds()
        return leases.Lease(
            **{**fields, "command": row.command or ""},
            holder=None if row.host is None else jobs.Submitter(**holder),
            age_seconds=age,
        )

    def add(self) -> None:
        """Add the lease, without a holder. Raises DatabaseError if another process was faster."""
        values = {"name": _NAME, "fence": 0, "renewals": 0, "seconds": 0.0}
        self._insert_many(LEASES, [values])

    def take(
        self,
        seen: leases.Lease,
        me: jobs.Submitter,
        *,
        command: str,
        seconds: float,
        here: datetime.datetime,
    ) -> int | None:
        """Take the lease if it still is as it was seen; return its new fence, else None."""
        now = self._now(here)
        values = {
            **vars(me),
            "fence": seen.fence + 1,
            "command": command,
            "since": now,
            "renewed_at": now,
            "renewals": seen.renewals + 1,
            "seconds": seconds,
        }
        taken = self._change(seen.fence, values, _LEASE.renewals == seen.renewals)
        return seen.fence + 1 if taken else None

    def renew(self, fence: int, here: datetime.datetime) -> bool:
        """Renew the lease; return False if it has another fence."""
        values = {"renewed_at": self._now(here), "renewals": _LEASE.renewals + 1}
        return self._change(fence, values)

    def give_back(self, fence: int) -> None:
        """Give the lease back, unless it has another fence."""
        columns = ("host", "boot_id", "pid", "start_ticks", "command", "since", "renewed_at")
        self._change(fence, dict.fromkeys(columns))

    def has_fence(self, fence: int) -> bool:
        """Return whether the lease has this fence; in a write transaction it stays so."""
        is_mine = _LEASE.name == _NAME, _LEASE.fence == fence
        return bool(self._rows(sa.select(_LEASE.fence).where(*is_mine)))

    def _change(
        self, fence: int, values: dict[str, Any], *conditions: sa.ColumnElement[bool]
    ) -> bool:
        is_mine = _LEASE.name == _NAME, _LEASE.fence == fence
        return self._update(LEASES, values, *is_mine, *conditions) == 1

    def _now(self, here: datetime.datetime) -> datetime.datetime:
        """Return the time of the database server, `here` for a file."""
        if not self.one_clock:
            return here
        at = self._connection.scalar(sa.select(sa.func.clock_timestamp()))
        assert isinstance(at, datetime.datetime)
        return at
