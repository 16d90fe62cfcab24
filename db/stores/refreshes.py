"""When Slurm was last queried about each cluster, and which process may query it now."""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from db import models, statements
from orchestrator.tracking import records

#: A claim that expires later than this was made by a clock that was wrong.
LONGEST_CLAIM_SECONDS = 600.0


class RefreshStore:
    """The state of querying Slurm within one transaction."""

    def __init__(self, db: statements.Session) -> None:
        self._db = db

    def get(self, cluster: str) -> records.RefreshState:
        refreshes = models.Refresh.__table__
        statement = sa.select(refreshes).where(refreshes.c.cluster == cluster)
        row = self._db.execute(statement).first()
        return records.RefreshState(**({"cluster": cluster} if row is None else row._mapping))

    def claim(
        self,
        cluster: str,
        now: datetime.datetime,
        floor_seconds: float,
        holder: str,
        *,
        claim_seconds: float = 120,
    ) -> bool:
        """Claim the right to query Slurm.

        Return false if another process has the claim, or if the last refresh is less than
        `floor_seconds` old. The claim ends with `finish`, or expires if its holder died.
        """
        state = self._locked(cluster)
        held_seconds = _seconds(now, state.claimed_until)
        if state.holder != holder and 0 < held_seconds <= LONGEST_CLAIM_SECONDS:
            return False
        for tried_at in (state.last_good_squeue_at, state.last_tried_at):
            # A moment far in the future was written by a clock that was wrong: not fresh.
            if tried_at is not None and abs(_seconds(now, tried_at)) < floor_seconds:
                return False
        claim = datetime.timedelta(seconds=min(claim_seconds, LONGEST_CLAIM_SECONDS))
        state.holder, state.last_tried_at, state.claimed_until = holder, now, now + claim
        self._db.flush()
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
        state = self._locked(cluster)
        if squeue_at is not None:
            state.last_good_squeue_at = squeue_at
            state.failing_since = state.last_error = None
        if sacct_at is not None:
            state.last_good_sacct_at = sacct_at
        if failed_at is not None:
            state.failing_since = state.failing_since or failed_at
            state.last_error = error
        if state.holder == holder:
            state.holder = state.claimed_until = None
        self._db.flush()

    def _locked(self, cluster: str) -> models.Refresh:
        state = self._db.get(models.Refresh, cluster, with_for_update=True)
        if state is None:
            state = models.Refresh(cluster=cluster)
            self._db.add(state)
        return state


def _seconds(start: datetime.datetime, end: datetime.datetime | None) -> float:
    return 0.0 if end is None else (end - start).total_seconds()
