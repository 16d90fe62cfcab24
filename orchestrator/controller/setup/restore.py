"""Replacing the database with a backup, if no controller uses it."""

from __future__ import annotations

import contextlib
import datetime
import pathlib

from orchestrator import errors
from orchestrator.controller.service import leases
from orchestrator.controller.session import stores


def restore(
    store: stores.Store, backup: pathlib.Path, now: datetime.datetime
) -> pathlib.Path | None:
    """Replace the database with a backup; return where the old file is kept.

    Raises ConflictError while the database is in use.
    """
    if not backup.is_file():
        raise errors.NotFoundError(f"no file {backup}; `orchestrator db restore` lists backups")
    if store.exists():
        # No lock shows that another host has a file on a shared disk open.
        lease = None
        with contextlib.suppress(errors.DatabaseError, errors.NewerDatabaseError):
            with store.reading() as work:
                lease = work.leases.read(now)
        store.close()
        if lease is not None and lease.holder and not (leases.has_ended(lease) or lease.lapsed):
            raise errors.ConflictError(
                f"{lease.holder_description} uses this database. Stop it first, then restore."
            )
    return store.restore(backup)
