"""The parts of the store that few commands ask: each is loaded when it is."""

from __future__ import annotations

import typing

from db import statements

if typing.TYPE_CHECKING:
    from db.stores import graphs, recovery
    from orchestrator.controller import (
        baselines,
        dependency_rows,
        lease_rows,
        notice_rows,
        schedule_rows,
        sweep_rows,
    )


class Parts:
    """What can be asked within one transaction, by what it is about."""

    def __init__(self, db: statements.Session) -> None:
        self._db = db

    @property
    def sweeps(self) -> sweep_rows.SweepStore:
        from orchestrator.controller import sweep_rows

        return sweep_rows.SweepStore(self._db)

    @property
    def baselines(self) -> baselines.BaselineStore:
        from orchestrator.controller import baselines

        return baselines.BaselineStore(self._db)

    @property
    def dependencies(self) -> dependency_rows.DependencyStore:
        from orchestrator.controller import dependency_rows

        return dependency_rows.DependencyStore(self._db)

    @property
    def graphs(self) -> graphs.GraphStore:
        from db.stores import graphs

        return graphs.GraphStore(self._db)

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
    def recovery(self) -> recovery.RecoveryStore:
        from db.stores import recovery

        return recovery.RecoveryStore(self._db)
