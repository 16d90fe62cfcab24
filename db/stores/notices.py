"""Notices and their deliveries, and the history that notices are made from."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from db import queries
from db.tables.jobs import JOB_EVENTS
from db.tables.service import DELIVERIES, NOTICES
from db.tables.sweeps import SWEEP_POINTS
from orchestrator import jobs
from orchestrator.notices import records

_NOTICE, _DELIVERY, _EVENT = NOTICES.c, DELIVERIES.c, JOB_EVENTS.c
_UNSENT = _DELIVERY.state.in_(("waiting", "sending"))
#: What is stored of records.Notice, by column.
_NOTICE_FIELDS = {
    "key": "key",
    "kind": "kind",
    "subject": "subject",
    "body": "body",
    "job_row": "job_row",
    "sweep_id": "sweep_row",
    "schedule_id": "schedule_row",
}
_SELECT_DELIVERIES: sa.Select[Any] = sa.select(
    _NOTICE.id.label("notice_row"),
    *(_NOTICE[column].label(field) for column, field in _NOTICE_FIELDS.items()),
    _NOTICE.created_at,
    *(_DELIVERY[name] for name in ("channel", "state", "tries", "next_at", "sent_at", "error")),
)


class NoticeStore(queries.Store):
    """The notices within one transaction."""

    def newest_event(self) -> int:
        """Return the row of the newest event of a job, 0 if there is none."""
        return self._connection.scalar(sa.select(sa.func.max(_EVENT.id))) or 0

    def events_after(self, row: int, limit: int) -> list[tuple[int, int, jobs.JobEvent]]:
        """Return the next events after this one, oldest first, each with its and its job's row."""
        names = ("at", "kind", "state", "source", "detail")
        columns = (_EVENT.id, _EVENT.job_row, *(_EVENT[name] for name in names))
        statement = sa.select(*columns).where(_EVENT.id > row).order_by(_EVENT.id).limit(limit)
        return [
            (row, job_row, jobs.JobEvent(**dict(zip(names, values, strict=True))))
            for row, job_row, *values in self._rows(statement)
        ]

    def cause(self, job_row: int, attempt: int) -> str:
        """Return the failure cause of an attempt: "CAUSE: a sentence"; "" if there is none."""
        statement = sa.select(_EVENT.detail).where(
            _EVENT.job_row == job_row, _EVENT.attempt == attempt, _EVENT.kind == "cause"
        )
        return self._connection.scalar(statement.order_by(_EVENT.id.desc()).limit(1)) or ""

    def sweeps_of_jobs(self, job_rows: Collection[int]) -> dict[int, int]:
        """Return the sweep of each job that is the newest of its point, by job row."""
        point = SWEEP_POINTS.c
        of_jobs = queries.among(point.job_row, job_rows)
        statement = sa.select(point.job_row, point.sweep_id).where(of_jobs)
        return {row: sweep for row, sweep in self._rows(statement) if row is not None}

    def known_keys(self, keys: Collection[str]) -> set[str]:
        """Return those of the keys that have a notice."""
        statement = sa.select(_NOTICE.key).where(queries.among(_NOTICE.key, keys))
        return set(self._connection.scalars(statement))

    def add(self, notice: records.Notice, channels: Sequence[str], at: datetime.datetime) -> None:
        """Store a notice, to be sent through these channels."""
        values = {column: getattr(notice, field) for column, field in _NOTICE_FIELDS.items()}
        row = self._insert(NOTICES, {**values, "created_at": at})
        delivery = {"notice_id": row, "state": "waiting", "tries": 0, "next_at": at}
        if channels:
            rows = [{**delivery, "channel": channel} for channel in channels]
            self._connection.execute(sa.insert(DELIVERIES), rows)

    def due(
        self, channel: str, state: str, now: datetime.datetime, limit: int
    ) -> list[records.Delivery]:
        """Return the deliveries through this channel that are due, oldest notice first."""
        statement = (
            _SELECT_DELIVERIES.join_from(NOTICES, DELIVERIES)
            .where(_DELIVERY.channel == channel, _DELIVERY.state == state, _DELIVERY.next_at <= now)
            .order_by(_NOTICE.id)
            .limit(limit)
        )
        return [_delivery(row) for row in self._rows(statement)]

    def deliveries(self, limit: int, states: Collection[str] = ()) -> list[records.Delivery]:
        """Return deliveries, newest notice first, and unless `states` are given also notices
        that no channel asks for.
        """
        statement = _SELECT_DELIVERIES.join_from(NOTICES, DELIVERIES, isouter=not states)
        if states:
            statement = statement.where(_DELIVERY.state.in_(states))
        newest_first = statement.order_by(_NOTICE.id.desc(), _DELIVERY.channel).limit(limit)
        return [_delivery(row) for row in self._rows(newest_first)]

    def unsent_channels(self) -> set[str]:
        """Return the channels that have something to send."""
        return set(self._connection.scalars(sa.select(_DELIVERY.channel).where(_UNSENT).distinct()))

    def claim(
        self, channel: str, deliveries: Sequence[records.Delivery], until: datetime.datetime
    ) -> bool:
        """Claim the right to send these; if False, another process has it and the caller must
        not commit.
        """
        for delivery in deliveries:
            is_same = _DELIVERY.notice_id == delivery.notice_row, _DELIVERY.tries == delivery.tries
            statement = (
                sa.update(DELIVERIES)
                .where(*is_same, _DELIVERY.channel == channel, _UNSENT)
                .values(state="sending", tries=delivery.tries + 1, next_at=until)
            )
            if self._changed(statement) != 1:
                return False
        return True

    def change(
        self, channel: str, deliveries: Sequence[records.Delivery], **values: object
    ) -> None:
        """Change fields of these deliveries."""
        rows = [delivery.notice_row for delivery in deliveries]
        of_these = _DELIVERY.channel == channel, queries.among(_DELIVERY.notice_id, rows)
        self._connection.execute(sa.update(DELIVERIES).where(*of_these).values(values))

    def give_up(self, channel: str, error: str) -> int:
        """Give up everything unsent of this channel; return the number of notices."""
        statement = sa.update(DELIVERIES).where(_DELIVERY.channel == channel, _UNSENT)
        values = {"state": "failed", "error": error}
        return self._changed(statement.values(values))

    def retry(self, channel: str | None, now: datetime.datetime) -> int:
        """Make unsent and failed deliveries due now; return how many there are."""
        statement = sa.update(DELIVERIES).where(
            _DELIVERY.state.in_(("waiting", "sending", "failed"))
        )
        if channel is not None:
            statement = statement.where(_DELIVERY.channel == channel)
        # A message that its receiver may have is sent unchanged, with the same notices.
        state = sa.case((_DELIVERY.state == "failed", "waiting"), else_=_DELIVERY.state)
        return self._changed(statement.values(state=state, next_at=now))

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the number of deliveries by channel and state."""
        columns = (_DELIVERY.channel, _DELIVERY.state)
        statement = sa.select(*columns, sa.func.count()).group_by(*columns).order_by(*columns)
        return {(channel, state): n for channel, state, n in self._rows(statement)}


def _delivery(row: sa.Row[Any]) -> records.Delivery:
    values = row._asdict()
    notice = records.Notice(**{field: values.pop(field) for field in _NOTICE_FIELDS.values()})
    return records.Delivery(notice=notice, **{**values, "tries": row.tries or 0})
