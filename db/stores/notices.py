"""Notices and their deliveries."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from db.stores import base
from db.tables.service import DELIVERIES, NOTICES
from db.tables.sweeps import SWEEP_POINTS
from orchestrator.notices import records

_NOTICE, _DELIVERY = NOTICES.c, DELIVERIES.c
_UNSENT = _DELIVERY.state.in_(("waiting", "sending"))
_SELECT_NOTICES = base.select(NOTICES, records.Notice)
#: What is stored of records.Notice.
_NOTICE_FIELDS = tuple(_SELECT_NOTICES.selected_columns.keys())
_SELECT_DELIVERIES: sa.Select[Any] = _SELECT_NOTICES.add_columns(
    _NOTICE.id.label("notice_row"),
    _NOTICE.created_at,
    *(_DELIVERY[name] for name in ("channel", "state", "tries", "next_at", "sent_at", "error")),
)


class NoticeStore(base.Store):
    def sweeps_of_jobs(self, job_rows: Collection[int]) -> dict[int, int]:
        """Return the sweep of each job that is the newest of its point, by job row."""
        point = SWEEP_POINTS.c
        of_jobs = base.among(point.job_row, job_rows)
        return self._pairs(sa.select(point.job_row, point.sweep_id).where(of_jobs))

    def known_keys(self, keys: Collection[str]) -> set[str]:
        return {*self._scalars(sa.select(_NOTICE.key).where(base.among(_NOTICE.key, keys)))}

    def add(self, notice: records.Notice, channels: Sequence[str], at: datetime.datetime) -> None:
        """Store a notice, to be sent through these channels."""
        fields = {name: getattr(notice, name) for name in _NOTICE_FIELDS}
        row = self._insert(NOTICES, {**fields, "created_at": at})
        delivery = {"notice_id": row, "state": "waiting", "tries": 0, "next_at": at}
        self._insert_many(DELIVERIES, [{**delivery, "channel": channel} for channel in channels])

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
        return {*self._scalars(sa.select(_DELIVERY.channel).where(_UNSENT).distinct())}

    def claim(
        self, channel: str, deliveries: Sequence[records.Delivery], until: datetime.datetime
    ) -> bool:
        """Claim the right to send these; if False, another process has it and the caller must
        not commit.
        """
        for delivery in deliveries:
            is_same = _DELIVERY.notice_id == delivery.notice_row, _DELIVERY.tries == delivery.tries
            values = {"state": "sending", "tries": delivery.tries + 1, "next_at": until}
            is_unsent = _DELIVERY.channel == channel, _UNSENT
            if self._update(DELIVERIES, values, *is_same, *is_unsent) != 1:
                return False
        return True

    def change(
        self, channel: str, deliveries: Sequence[records.Delivery], **values: object
    ) -> None:
        rows = [delivery.notice_row for delivery in deliveries]
        of_these = _DELIVERY.channel == channel, base.among(_DELIVERY.notice_id, rows)
        self._update(DELIVERIES, values, *of_these)

    def give_up(self, channel: str, error: str) -> int:
        """Give up everything unsent of this channel; return the number of notices."""
        values = {"state": "failed", "error": error}
        return self._update(DELIVERIES, values, _DELIVERY.channel == channel, _UNSENT)

    def retry(self, channel: str | None, now: datetime.datetime) -> int:
        """Make unsent and failed deliveries due now; return how many there are."""
        is_selected = [_DELIVERY.state != "sent"]
        if channel is not None:
            is_selected.append(_DELIVERY.channel == channel)
        # A message that its receiver may have is sent unchanged, with the same notices.
        state = sa.case((_DELIVERY.state == "failed", "waiting"), else_=_DELIVERY.state)
        return self._update(DELIVERIES, {"state": state, "next_at": now}, *is_selected)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the number of deliveries by channel and state."""
        columns = (_DELIVERY.channel, _DELIVERY.state)
        statement = sa.select(*columns, sa.func.count()).group_by(*columns).order_by(*columns)
        return {(channel, state): n for channel, state, n in self._rows(statement)}


def _delivery(row: sa.Row[Any]) -> records.Delivery:
    values = row._asdict()
    notice = records.Notice(**{name: values.pop(name) for name in _NOTICE_FIELDS})
    return records.Delivery(notice=notice, **{**values, "tries": row.tries or 0})
