"""One transaction and its stores."""

from __future__ import annotations

import importlib
import typing

import sqlalchemy as sa

if typing.TYPE_CHECKING:
    from db.stores.baselines import BaselineStore
    from db.stores.changes import ChangeStore
    from db.stores.graphs import GraphStore
    from db.stores.jobs import AttemptStore, EventStore, JobStore
    from db.stores.jobs.dependencies import DependencyStore
    from db.stores.jobs.environments import EnvironmentStore
    from db.stores.jobs.job_lists import JobListStore
    from db.stores.leases import LeaseStore
    from db.stores.metrics.log_cursors import LogCursorStore
    from db.stores.metrics.metrics import MetricStore
    from db.stores.monitoring import MonitoringStore
    from db.stores.nodes import NodeStore
    from db.stores.notices import NoticeStore
    from db.stores.plans import PlanStore
    from db.stores.prune import PruneStore
    from db.stores.recovery import RecoveryStore
    from db.stores.refreshes import RefreshStore
    from db.stores.schedules import ScheduleStore
    from db.stores.settings import SettingStore
    from db.stores.sweeps import SweepStore

#: Modules in db/stores of the stores that are not in NAME.py.
_MODULES = {
    **dict.fromkeys(("attempts", "events"), "jobs"),
    **{name: f"jobs.{name}" for name in ("dependencies", "environments", "job_lists")},
    **{name: f"metrics.{name}" for name in ("log_cursors", "metrics")},
}


class UnitOfWork:
    """The stores within one transaction. Inside `reading()` the database refuses changes.

    A write transaction is short: no command of Slurm is run and no log is read inside one. Each
    store is imported at its first use, because most commands use few of them.
    """

    attempts: AttemptStore
    baselines: BaselineStore
    changes: ChangeStore
    dependencies: DependencyStore
    environments: EnvironmentStore
    events: EventStore
    graphs: GraphStore
    job_lists: JobListStore
    jobs: JobStore
    leases: LeaseStore
    log_cursors: LogCursorStore
    metrics: MetricStore
    monitoring: MonitoringStore
    nodes: NodeStore
    notices: NoticeStore
    plans: PlanStore
    prune: PruneStore
    recovery: RecoveryStore
    refreshes: RefreshStore
    schedules: ScheduleStore
    settings: SettingStore
    sweeps: SweepStore

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> typing.Any:
        """Make a store at its first use."""
        classes = type(self).__annotations__
        if name not in classes:
            raise AttributeError(name)
        module = importlib.import_module(f"db.stores.{_MODULES.get(name, name)}")
        store = getattr(module, classes[name])(self._connection)
        setattr(self, name, store)
        return store
