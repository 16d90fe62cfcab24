"""The parts of the store that few commands ask: each is loaded when it is."""

from __future__ import annotations

import typing

from db import statements

if typing.TYPE_CHECKING:
    from db.stores import baselines, dependencies, log_cursors, metrics, sweeps
    from orchestrator.controller import (
        graph_rows,
        lease_rows,
        notice_rows,
        recovery_rows,
        schedule_rows,
    )


class Parts:
    """What can be asked within one transaction, by what it is about."""

    def __init__(self, db: statements.Session) -> None:
        self._db = db

    @property
    def metrics(self) -> metrics.MetricStore:
        from db.stores import metrics

        return metrics.MetricStore(self._db)

    @property
    def log_cursors(self) -> log_cursors.LogCursorStore:
        from db.stores import log_cursors

        return log_cursors.LogCursorStore(self._db)

    @property
    def sweeps(self) -> sweeps.SweepStore:
        from db.stores import sweeps

        return sweeps.SweepStore(self._db)

    @property
    def baselines(self) -> baselines.BaselineStore:
        from db.stores import baselines

        return baselines.BaselineStore(self._db)

    @property
    def dependencies(self) -> dependencies.DependencyStore:
        from db.stores import dependencies

        return dependencies.DependencyStore(self._db)

    @property
    def graphs(self) -> graph_rows.GraphStore:
        from orchestrator.controller import graph_rows

        return graph_rows.GraphStore(self._db)

    @property
    def leases(self) -> lease_rows.LeaseStore:
        from orchestrator.controller import lease_rows

        return lease_rows.LeaseStore(self._db)

    @property
    def schedules(self) -> schedule_rows.ScheduleStore:
        from orchestrator.controller import schedule_rows

        return schedule_rows.ScheduleStore(self._db)

    @property
    def notices(self) -> notice_rows.NoticeStore:
        from orchestrator.controller import notice_rows

        return notice_rows.NoticeStore(self._db)

    @property
    def recoveries(self) -> recovery_rows.RecoveryStore:
        from orchestrator.controller import recovery_rows

        return recovery_rows.RecoveryStore(self._db)
