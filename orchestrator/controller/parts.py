"""The parts of the store that few commands ask: each is loaded when it is."""

from __future__ import annotations

import typing

from db import statements

if typing.TYPE_CHECKING:
    from db.stores import leases, notices, schedules
    from orchestrator.controller import (
        baselines,
        dependency_rows,
        graph_rows,
        recovery_rows,
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
    def graphs(self) -> graph_rows.GraphStore:
        from orchestrator.controller import graph_rows

        return graph_rows.GraphStore(self._db)

    @property
    def leases(self) -> leases.LeaseStore:
        from db.stores import leases

        return leases.LeaseStore(self._db)

    @property
    def schedules(self) -> schedules.ScheduleStore:
        from db.stores import schedules

        return schedules.ScheduleStore(self._db)

    @property
    def notices(self) -> notices.NoticeStore:
        from db.stores import notices

        return notices.NoticeStore(self._db)

    @property
    def recoveries(self) -> recovery_rows.RecoveryStore:
        from orchestrator.controller import recovery_rows

        return recovery_rows.RecoveryStore(self._db)
