"""The parts of the store that few commands ask: each is loaded when it is."""

from __future__ import annotations

import typing

from db import statements

if typing.TYPE_CHECKING:
    from db.stores import (
        baselines,
        dependencies,
        graphs,
        leases,
        log_cursors,
        metrics,
        notices,
        recovery,
        schedules,
        sweeps,
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
    def graphs(self) -> graphs.GraphStore:
        from db.stores import graphs

        return graphs.GraphStore(self._db)

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
    def recovery(self) -> recovery.RecoveryStore:
        from db.stores import recovery

        return recovery.RecoveryStore(self._db)
