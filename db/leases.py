"""The lease of the controller: questions and changes as plain functions of an open session."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from db import service_tables

_LEASES = service_tables.Lease.__table__
_LEASE = _LEASES.c


def lease(session: orm.Session, name: str) -> sa.Row[Any] | None:
    return session.execute(sa.select(_LEASES).where(_LEASE.name == name)).first()


def has_fence(session: orm.Session, name: str, fence: int) -> bool:
    """Return whether the lease has this number; it keeps it until the transaction has ended.

    In SQLite there is one writer at a time; PostgreSQL lets a take-over wait for the row.
    """
    mine = sa.select(_LEASE.fence).where(_LEASE.name == name, _LEASE.fence == fence)
    return session.execute(mine.with_for_update(read=True)).first() is not None


def add(session: orm.Session, columns: Mapping[str, object]) -> None:
    """Store a lease that never was; IntegrityError where another process was faster."""
    session.execute(sa.insert(_LEASES), dict(columns))  # type: ignore[arg-type]


def change(
    session: orm.Session, name: str, fence: int, renewals: int | None, columns: Mapping[str, object]
) -> bool:
    """Change a lease, if it has this number and was renewed so often (None: however often)."""
    mine = [_LEASE.name == name, _LEASE.fence == fence]
    if renewals is not None:
        mine.append(_LEASE.renewals == renewals)
    return _changed(session, sa.update(_LEASES).where(*mine).values(columns))  # type: ignore[arg-type]


def renew(session: orm.Session, name: str, fence: int, at: datetime.datetime) -> bool:
    """Count one more renewal of a lease that has this number."""
    mine = sa.update(_LEASES).where(_LEASE.name == name, _LEASE.fence == fence)  # type: ignore[arg-type]
    return _changed(session, mine.values(renewed_at=at, renewals=_LEASE.renewals + 1))


def now(session: orm.Session, here: datetime.datetime) -> datetime.datetime:
    """Return the server's time, which is the same for all hosts; of a file it is `here`."""
    if session.get_bind().dialect.name == "sqlite":
        return here
    at = session.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    assert isinstance(at, datetime.datetime)
    return at


def server_time(session: orm.Session) -> datetime.datetime | None:
    """Return the time on a server; None for a file, and for a server on this host."""
    if session.get_bind().dialect.name == "sqlite":
        return None
    server, client = sa.func.inet_server_addr(), sa.func.inet_client_addr()
    # Over a Unix socket neither has an address.
    elsewhere = sa.case((server != client, sa.func.clock_timestamp()))
    at = session.execute(sa.select(elsewhere)).scalar_one()
    assert at is None or isinstance(at, datetime.datetime)
    return at


def _changed(session: orm.Session, statement: sa.Update) -> bool:
    result = session.execute(statement)
    assert isinstance(result, sa.CursorResult)
    return result.rowcount == 1
