"""A backup put in place of the database, where nobody acts on it."""

from __future__ import annotations

import contextlib
import datetime
import pathlib

from orchestrator import errors
from orchestrator.controller.service import lease_messages, leases
from orchestrator.controller.session import stores


def restore(store: stores.Store, backup: pathlib.Path, now: datetime.datetime) -> stores.Restored:
    """Put a backup in place of the database; ConflictError while somebody works with it."""
    if not backup.is_file():
        raise errors.NotFoundError(f"no file {backup}; `orchestrator db restore` lists backups")
    if store.exists():
        _refuse_controller(store, now)
    return store.restore(backup)


def _refuse_controller(store: stores.Store, now: datetime.datetime) -> None:
    # Where the file is shared by hosts, no lock shows that another host has it open.
    lease = None
    with contextlib.suppress(errors.DatabaseError, errors.NewerDatabaseError):
        with store.reading() as work:
            lease = work.leases.read(now)
    store.close()
    if lease is None or lease.holder is None or leases.has_ended(lease) or lease.lapsed:
        return
    raise errors.ConflictError(
        f"{lease_messages.described(lease)} acts on this database. End it first, then restore."
    )
