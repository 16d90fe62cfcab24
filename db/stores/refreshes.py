"""When Slurm last answered for each cluster, and which process may query it now."""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from db.stores import base
from db.tables.jobs import REFRESHES
from orchestrator.tracking import records

#: How long a claim holds if its holder died.
_CLAIM = datetime.timedelta(seconds=120)
#: A later expiry of a claim was written by a wrong clock.
_LONGEST_CLAIM = datetime.timedelta(seconds=600)


class RefreshStore(base.Store):
    def get(self, cluster: str) -> records.RefreshState:
        statement = sa.select(REFRESHES).where(REFRESHES.c.cluster == cluster)
        state = self._first(records.RefreshState, statement)
        return state or records.RefreshState(cluster=cluster)

    def all(self) -> list[records.RefreshState]:
        """Return the state of each cluster that was ever asked, by name."""
        statement = sa.select(REFRESHES).order_by(REFRESHES.c.cluster)
        return self._records(records.RefreshState, statement)

    def claim(
        self, cluster: str, now: datetime.datetime, floor_seconds: float, holder: str
    ) -> bool:
        """Claim the right to query Slurm.

        Return False if another process has the claim, or if the last refresh is less than
        `floor_seconds` old. The claim ends with `finish`, or expires if its holder died.
        """
        state = self.get(cluster)
        until = state.claimed_until or now
        if state.holder != holder and now < until <= now + _LONGEST_CLAIM:
            return False
        for tried_at in (state.last_good_squeue_at, state.last_tried_at):
            # A time far in the future was written by a wrong clock: it is not fresh.
            if tried_at is not None and abs((tried_at - now).total_seconds()) < floor_seconds:
                return False
        self._store(state, holder=holder, last_tried_at=now, claimed_until=now + _CLAIM)
        return True

    def finish(
        self,
        cluster: str,
        *,
        holder: str,
        squeue_at: datetime.datetime | None = None,
        sacct_at: datetime.datetime | None = None,
        failed_at: datetime.datetime | None = None,
        error: str = "",
    ) -> None:
        """Store the result of a refresh, and release the claim if `holder` still has it."""
        state = self.get(cluster)
        changes: dict[str, object] = {}
        if squeue_at is not None:
            changes = {"last_good_squeue_at": squeue_at, "failing_since": None, "last_error": None}
        if failed_at is not None:
            changes = {"failing_since": state.failing_since or failed_at, "last_error": error}
        if sacct_at is not None:
            changes["last_good_sacct_at"] = sacct_at
        if state.holder == holder:
            changes |= {"holder": None, "claimed_until": None}
        self._store(state, **changes)

    def _store(self, state: records.RefreshState, **changes: object) -> None:
        self._put(REFRESHES, [{**vars(state), **changes}])
