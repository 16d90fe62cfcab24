"""One transaction, through its stores."""

from __future__ import annotations

import functools
import typing

from db import statements

if typing.TYPE_CHECKING:
    from db.stores.attempts import AttemptStore, EventStore
    from db.stores.jobs import JobStore
    from db.stores.refreshes import RefreshStore
    from db.stores.settings import SettingStore


class UnitOfWork:
    """The stores within one transaction. Inside `reading()` the database refuses changes.

    A write transaction is short: no command of Slurm is run and no log is read inside one. Each
    store is imported when it is first used, because most commands use few of them.
    """

    def __init__(self, db: statements.Session) -> None:
        self._db = db

    @functools.cached_property
    def jobs(self) -> JobStore:
        from db.stores.jobs import JobStore

        return JobStore(self._db)

    @functools.cached_property
    def attempts(self) -> AttemptStore:
        from db.stores.attempts import AttemptStore

        return AttemptStore(self._db)

    @functools.cached_property
    def events(self) -> EventStore:
        from db.stores.attempts import EventStore

        return EventStore(self._db)

    @functools.cached_property
    def refreshes(self) -> RefreshStore:
        from db.stores.refreshes import RefreshStore

        return RefreshStore(self._db)

    @functools.cached_property
    def settings(self) -> SettingStore:
        from db.stores.settings import SettingStore

        return SettingStore(self._db)
