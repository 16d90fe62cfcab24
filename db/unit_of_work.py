"""One transaction, through its stores."""

from __future__ import annotations

import functools
import typing

from db import statements

if typing.TYPE_CHECKING:
    from db.stores.attempts import AttemptStore, EventStore
    from db.stores.baselines import BaselineStore
    from db.stores.dependencies import DependencyStore
    from db.stores.graphs import GraphStore
    from db.stores.jobs import JobStore
    from db.stores.leases import LeaseStore
    from db.stores.log_cursors import LogCursorStore
    from db.stores.metrics import MetricStore
    from db.stores.notices import NoticeStore
    from db.stores.recovery import RecoveryStore
    from db.stores.refreshes import RefreshStore
    from db.stores.schedules import ScheduleStore
    from db.stores.settings import SettingStore
    from db.stores.sweeps import SweepStore


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

    @functools.cached_property
    def metrics(self) -> MetricStore:
        from db.stores.metrics import MetricStore

        return MetricStore(self._db)

    @functools.cached_property
    def log_cursors(self) -> LogCursorStore:
        from db.stores.log_cursors import LogCursorStore

        return LogCursorStore(self._db)

    @functools.cached_property
    def sweeps(self) -> SweepStore:
        from db.stores.sweeps import SweepStore

        return SweepStore(self._db)

    @functools.cached_property
    def dependencies(self) -> DependencyStore:
        from db.stores.dependencies import DependencyStore

        return DependencyStore(self._db)

    @functools.cached_property
    def baselines(self) -> BaselineStore:
        from db.stores.baselines import BaselineStore

        return BaselineStore(self._db)

    @functools.cached_property
    def schedules(self) -> ScheduleStore:
        from db.stores.schedules import ScheduleStore

        return ScheduleStore(self._db)

    @functools.cached_property
    def notices(self) -> NoticeStore:
        from db.stores.notices import NoticeStore

        return NoticeStore(self._db)

    @functools.cached_property
    def leases(self) -> LeaseStore:
        from db.stores.leases import LeaseStore

        return LeaseStore(self._db)

    @functools.cached_property
    def recovery(self) -> RecoveryStore:
        from db.stores.recovery import RecoveryStore

        return RecoveryStore(self._db)

    @functools.cached_property
    def graphs(self) -> GraphStore:
        from db.stores.graphs import GraphStore

        return GraphStore(self._db)
