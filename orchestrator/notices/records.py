"""The records of notices: what happened, and its delivery."""

from __future__ import annotations

import dataclasses
import datetime


@dataclasses.dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that people are notified of once."""

    #: identifies what happened, so that there is one notice of it: "end:@7:0"
    key: str
    #: one of config.channels.KINDS
    kind: str
    subject: str
    body: str
    job_row: int | None = None
    sweep_row: int | None = None
    schedule_row: int | None = None
    #: labels of the jobs that it is about
    labels: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """One or more notices, as sent to one receiver."""

    #: the same each time the same notices are sent to the same receiver
    id: str
    subject: str
    body: str
    notices: tuple[Notice, ...]
    #: when the first of the notices was stored
    at: datetime.datetime


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delivery:
    notice_row: int
    notice: Notice
    created_at: datetime.datetime
    #: None: no channel asks for this notice
    channel: str | None
    #: waiting, sending, sent or failed
    state: str | None
    #: number of attempts so far
    tries: int
    #: time of the next attempt
    next_at: datetime.datetime | None
    sent_at: datetime.datetime | None
    error: str | None
