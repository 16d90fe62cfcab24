"""One transaction and its stores."""

from __future__ import annotations

import importlib
import typing

import sqlalchemy as sa

if typing.TYPE_CHECKING:
    from db.stores.baselines import BaselineStore
    from db.stores.dependencies import DependencyStore
    from db.stores.environments import EnvironmentStore
    from db.stores.graphs import GraphStore
    from db.stores.jobs import AttemptStore, EventStore, JobStore
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
    store is imported at its first use, because most commands use few of them.
    """

    attempts: AttemptStore
    baselines: BaselineStore
    dependencies: DependencyStore
    environments: EnvironmentStore
    events: EventStore
    graphs: GraphStore
    jobs: JobStore
    leases: LeaseStore
    log_cursors: LogCursorStore
    metrics: MetricStore
    notices: NoticeStore
    recovery: RecoveryStore
    refreshes: RefreshStore
    schedules: ScheduleStore
    settings: SettingStore
    sweeps: SweepStore

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> typing.Any:
        """Make a store at its first use: the class in db/stores/NAME.py, or in jobs.py."""
        classes = type(self).__annotations__
        if name not in classes:
            raise AttributeError(name)
        file = "jobs" if name in ("attempts", "events") else name
        module = importlib.import_module(f"db.stores.{file}")
        store = getattr(module, classes[name])(self._connection)
        setattr(self, name, store)
        return store
