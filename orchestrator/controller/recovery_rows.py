"""What follows failures in the store: rows <-> records, and the questions in these words."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, cast

from sqlalchemy import orm

from db import recoveries as queries
from db import service_tables
from db.stores import jobs as job_store
from orchestrator import jobs, recovery

#: Kind of the event that says so: a folder of the job is not seen from here.
AWAY = "away"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredRecovery:
    """A decision about one attempt of a job, and what came of it."""

    id: int
    job_row: int
    attempt: int
    decision: recovery.Decision
    #: planned, done, or refused: it came otherwise, `detail` says how
    state: Literal["planned", "done", "refused"]
    #: a plain sentence: why, and what came of it
    detail: str
    decided_at: datetime.datetime
    #: the job that goes on
    next_job_row: int | None = None


class RecoveryStore:
    """The decisions within one transaction."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def undecided(self, clusters: Collection[str], limit: int, after: int) -> list[jobs.Job]:
        """Return jobs under [retry] that ended, and of whose newest attempt nothing is decided.

        Oldest first, those with rows behind `after`.
        """
        return job_store.job_records(queries.undecided(self._db, clusters, limit, after))

    def planned(self, now: datetime.datetime, limit: int, after: int) -> list[StoredRecovery]:
        """Return what is due and not done, oldest first, with numbers behind `after`."""
        return [_record(row) for row in queries.planned(self._db, now, limit, after)]

    def waiting(self, now: datetime.datetime) -> bool:
        """Tell whether something is to be decided about or is due."""
        return bool(queries.undecided(self._db, None, 1) or queries.planned(self._db, now, 1))

    def next_due_at(self, after: datetime.datetime) -> datetime.datetime | None:
        """Return when the next decision is due that was not by then."""
        return queries.next_due_at(self._db, after)

    def add(self, job: jobs.Job, decision: recovery.Decision, at: datetime.datetime) -> int:
        """Store a decision about the newest attempt; DatabaseError where there is one."""
        nothing = decision.action is recovery.Action.NONE
        changes = dict(decision.changes)
        return queries.add(
            self._db,
            {
                "job_row": job.row,
                "attempt": job.attempt,
                "cause": decision.cause,
                "rule": decision.rule,
                "action": str(decision.action),
                "state": "done" if nothing else "planned",
                "detail": decision.why,
                "decided_at": at,
                "due_at": decision.due_at,
                "step": decision.step,
                "changes": json.dumps(changes, ensure_ascii=False) if changes else None,
            },
        )

    def finish(
        self,
        one: StoredRecovery,
        state: Literal["done", "refused"],
        *,
        detail: str | None = None,
        next_job_row: int | None = None,
        action: recovery.Action | None = None,
    ) -> bool:
        """Store what came of a planned decision; false where another process did."""
        columns: dict[str, object] = {"state": state, "next_job_row": next_job_row}
        if detail is not None:
            columns["detail"] = detail
        if action is not None:
            columns["action"] = str(action)
        return queries.change(self._db, one.id, columns, before="planned")

    def away_since(self, job_rows: Collection[int]) -> dict[int, datetime.datetime]:
        """Return since when a folder of these jobs is known not to be seen, by row."""
        return queries.first_told(self._db, job_rows, AWAY)

    def end_asked(self, job_rows: Collection[int]) -> Collection[int]:
        """Return the jobs of whose newest attempt somebody asked for the end."""
        return queries.first_told(self._db, job_rows, "cancel").keys()

    def withdraw(self, job_rows: Collection[int], detail: str) -> set[int]:
        """Let nothing follow the end of these jobs; returns the rows of those that had a plan."""
        found = [one for one in self.of_jobs(job_rows) if one.state == "planned"]
        queries.release(self._db, job_rows)
        return {one.job_row for one in found if self.finish(one, "refused", detail=detail)}

    def of_jobs(self, job_rows: Collection[int]) -> list[StoredRecovery]:
        """Return the decisions about these jobs, oldest first."""
        return [_record(row) for row in queries.of_jobs(self._db, job_rows)]

    def chain(self, row: int) -> list[int]:
        """Return the rows of the jobs of a chain in their order; a job alone is one."""
        found = [*queries.before(self._db, row), row]
        while (following := queries.after(self._db, found[-1:])) and found[-1] in following:
            found.append(following[found[-1]])
        return found

    def earlier(self, row: int) -> list[int]:
        """Return the rows of the jobs that this one goes on with, the first of all first."""
        return queries.before(self._db, row)

    def followers(self, job_rows: Collection[int]) -> dict[int, int]:
        """Return the rows of the jobs that go on with these, by the row of the one before."""
        return queries.after(self._db, job_rows)

    def last(self, job_rows: Collection[int]) -> dict[int, int]:
        """Return the row of the last job of the chain of each of these; of one alone its own."""
        last = {row: row for row in job_rows}
        while last and (following := queries.after(self._db, list(last.values()))):
            last = {row: following.get(now, now) for row, now in last.items()}
        return last

    def furthest_step(self, row: int, attempt: int | None = None) -> int | None:
        """Return the highest step that a job told, in one attempt or (none) in any."""
        return queries.furthest_step(self._db, row, attempt)


def _record(row: service_tables.Recovery) -> StoredRecovery:
    changes: Mapping[str, Any] = json.loads(row.changes) if row.changes else {}
    decision = recovery.Decision(
        action=recovery.Action(row.action),
        cause=row.cause,
        rule=row.rule,
        why=row.detail,
        due_at=row.due_at,
        changes={key: _value(value) for key, value in changes.items()},
        step=row.step,
    )
    return StoredRecovery(
        id=row.id,
        job_row=row.job_row,
        attempt=row.attempt,
        decision=decision,
        state=cast("Literal['planned', 'done', 'refused']", row.state),
        detail=row.detail,
        decided_at=row.decided_at,
        next_job_row=row.next_job_row,
    )


def _value(value: Any) -> jobs.ArgumentValue:
    return tuple(value) if isinstance(value, list) else cast("jobs.ArgumentValue", value)


def pasts(several: Sequence[StoredRecovery]) -> list[recovery.Past]:
    """Return decisions as the next one is made from them; what came otherwise is none."""
    return [
        recovery.Past(cause=one.decision.cause, action=one.decision.action, step=one.decision.step)
        for one in several
        if one.state != "refused"
    ]
