"""Notices in the store: rows <-> records, and the questions and changes in these words."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import orm

from db import notices as queries
from db import service_tables
from orchestrator import notices


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a job, as far as notices look at it."""

    id: int
    job_row: int
    at: datetime.datetime
    kind: str
    state: str | None
    source: str
    detail: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decision:
    """What the recovery rules decided about one attempt."""

    #: requeue, continue or none
    action: str
    #: planned, done or refused
    state: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waiting:
    """A stored notice that is to be sent by one channel."""

    id: int
    notice: notices.Notice
    created_at: datetime.datetime
    #: how often it was tried
    tries: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sent:
    """A stored notice and its way to one channel; none: no channel wants it."""

    id: int
    notice: notices.Notice
    created_at: datetime.datetime
    channel: str | None = None
    #: waiting, sending, sent or failed
    state: str | None = None
    tries: int = 0
    #: when it is tried next
    next_at: datetime.datetime | None = None
    sent_at: datetime.datetime | None = None
    error: str | None = None


class NoticeStore:
    """The notices within one transaction, and what there is to be told."""

    def __init__(self, db: orm.Session) -> None:
        self._db = db

    def newest_event(self) -> int:
        """Return the number of the newest event of a job; 0: there is none."""
        return queries.newest_event(self._db)

    def events_after(self, event: int, limit: int) -> list[Event]:
        """Return the next events behind this one, oldest first."""
        names = [field.name for field in dataclasses.fields(Event)]
        return [
            Event(**dict(zip(names, row, strict=True)))
            for row in queries.events_after(self._db, event, limit)
        ]

    def causes(self, wanted: Mapping[int, int]) -> dict[int, str]:
        """Return the cause that was told of the attempt of each job, by row; wanted: row, attempt.

        As "CAUSE: a sentence".
        """
        found = queries.causes(self._db, list(wanted))
        return {row: text for row, (attempt, text) in found.items() if attempt == wanted[row]}

    def sweeps_of(self, rows: Collection[int]) -> dict[int, int]:
        """Return the sweep of each of these jobs that is a point's newest, by row."""
        return queries.sweeps_of(self._db, rows)

    def decisions(self, rows: Collection[int]) -> dict[tuple[int, int], Decision]:
        """Return what was decided about these jobs, by row and attempt."""
        return {
            (row, attempt): Decision(action=action, state=state)
            for row, attempt, action, state in queries.recoveries(self._db, rows)
        }

    def firings(
        self, since: datetime.datetime, limit: int
    ) -> list[tuple[service_tables.Firing, str]]:
        """Return firings that were decided or judged since, each with its schedule's name."""
        return [(row[0], row[1]) for row in queries.firings(self._db, since, limit)]

    def planned(self, job_rows: Collection[int]) -> bool:
        """Tell whether a schedule submitted one of these jobs at a planned time."""
        return queries.planned(self._db, job_rows)

    def known(self, keys: Collection[str]) -> set[str]:
        """Return those of the keys that were told already."""
        return queries.known(self._db, keys)

    def add(self, notice: notices.Notice, channels: Sequence[str], at: datetime.datetime) -> None:
        """Store a notice, to be sent by these channels."""
        columns = {
            "key": notice.key,
            "kind": notice.kind,
            "subject": notice.subject,
            "body": notice.body,
            "job_row": notice.job_row,
            "sweep_id": notice.sweep_row,
            "schedule_id": notice.schedule_row,
        }
        queries.add(self._db, columns, channels, at)

    def due(self, channel: str, state: str, now: datetime.datetime, limit: int) -> list[Waiting]:
        """Return what is to be sent by this channel now, oldest first."""
        return [
            Waiting(id=row.id, notice=_record(row), created_at=row.created_at, tries=tries)
            for row, tries in queries.due(self._db, channel, state, now, limit)
        ]

    def waits(self) -> set[str]:
        """Return the channels by which something is to be sent."""
        return queries.waits(self._db)

    def claim(self, channel: str, some: Sequence[Waiting], until: datetime.datetime) -> bool:
        """Take the right to send these; false: nothing may be committed, another one has it."""
        return queries.claim(self._db, channel, {one.id: one.tries for one in some}, until)

    def change(self, channel: str, some: Sequence[Waiting], **values: Any) -> None:
        """Store what became of these; `values` are of Sent."""
        queries.change(self._db, channel, [one.id for one in some], values)

    def drop_channel(self, channel: str, error: str) -> int:
        """Give up what was to be sent by this channel; returns how many."""
        return queries.drop_channel(self._db, channel, error)

    def again(self, channel: str | None, now: datetime.datetime) -> int:
        """Let what waits or was given up be due now; returns how many."""
        return queries.again(self._db, channel, now)

    def newest(self, limit: int, states: Collection[str] = ()) -> list[Sent]:
        """Return stored notices by channel, newest first; `states`: only on such a way."""
        found: list[Sent] = []
        for row, way in queries.newest(self._db, limit, states):
            sent = Sent(id=row.id, notice=_record(row), created_at=row.created_at)
            names = ("channel", "state", "tries", "next_at", "sent_at", "error")
            told = {} if way is None else {name: getattr(way, name) for name in names}
            found.append(dataclasses.replace(sent, **told))
        return found

    def counts(self) -> dict[tuple[str, str], int]:
        """Return how many notices are where, by channel and state."""
        return {(channel, state): n for channel, state, n in queries.counts(self._db)}


def _record(row: service_tables.Notice) -> notices.Notice:
    return notices.Notice(
        key=row.key,
        kind=row.kind,
        subject=row.subject,
        body=row.body,
        job_row=row.job_row,
        sweep_row=row.sweep_id,
        schedule_row=row.schedule_id,
    )
