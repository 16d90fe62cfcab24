"""Decides what happens to a planned time: it fires, it waits, or it is skipped for a reason.

Each planned time has exactly one history entry; entries are never rewritten. Waiting triggers are
looked at again in each controller pass.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable
from typing import Literal

from orchestrator.schedules import calendars, records
from orchestrator.toml import values

#: With catchup "skip" a planned time is missed when it is later than this. Longer than the interval
#: of any driver that `schedule install` sets up, and than the delays of scrontab.
ON_TIME_SECONDS = 600
#: Planned times that are decided in one call.
MAX_DECIDED = 1000
#: If more planned times than this are skipped together, one entry stands for all earlier ones. A
#: month of minutes would be 43,200 entries.
MAX_SKIPPED = 100
_FIRST_WINDOW = datetime.timedelta(hours=1)


def decide(
    schedule: records.Schedule,
    since: datetime.datetime,
    now: datetime.datetime,
    *,
    limit: int = MAX_DECIDED,
) -> records.Decided:
    """Decide about the planned times after `since` and up to `now`, at most `limit` of them."""
    summary = _skipped_summary(schedule, since, now)
    if summary is not None:
        since = summary.planned_at
    upcoming = itertools.takewhile(lambda at: at <= now, schedule.calendar.after(since))
    times = list(itertools.islice(upcoming, limit + 1))
    more = len(times) > limit
    times = times[:limit]
    planned = [_decide(schedule, at, now, is_latest=not more and at == times[-1]) for at in times]
    if summary is not None:
        planned.insert(0, summary)
    return records.Decided(planned=tuple(planned), until=times[-1] if times else since, more=more)


def _skipped_summary(
    schedule: records.Schedule, since: datetime.datetime, now: datetime.datetime
) -> records.Planned | None:
    """Return the entry for all skipped times before the last MAX_SKIPPED; None: there are fewer."""
    last = now
    if schedule.catchup == "all" and not schedule.is_paused:
        last = now - datetime.timedelta(
            seconds=schedule.grace_seconds + schedule.jitter_seconds + 1
        )
    newest = _newest(schedule.calendar, since, last)
    if len(newest) <= MAX_SKIPPED:
        return None
    first = next(schedule.calendar.after(since))
    entry = _decide(schedule, newest[0], now, is_latest=False)
    if first == newest[0]:
        return entry
    reason = f"{entry.reason}; so are all planned times since {first:%Y-%m-%dT%H:%MZ}"
    return dataclasses.replace(entry, reason=reason, first_at=first)


def _newest(
    calendar: calendars.Calendar, since: datetime.datetime, last: datetime.datetime
) -> list[datetime.datetime]:
    """Return the newest MAX_SKIPPED + 1 planned times of an interval, or fewer.

    The interval may be years: its end is searched first.
    """
    window = _FIRST_WINDOW
    while True:
        begin = max(since, last - window) if window < last - since else since
        found = list(itertools.takewhile(lambda at: at <= last, calendar.after(begin)))
        if len(found) > MAX_SKIPPED or begin == since:
            return found[-MAX_SKIPPED - 1 :]
        window *= 2


def _decide(
    schedule: records.Schedule, at: datetime.datetime, now: datetime.datetime, *, is_latest: bool
) -> records.Planned:
    due = schedule.due(at)
    if schedule.is_paused:
        reason: str | None = "paused"
    elif schedule.catchup != "all" and not is_latest:
        reason = "missed: no controller pass before the next planned time"
    else:
        reason = _too_late(schedule, due, now, on_time=schedule.catchup == "skip")
    return records.Planned(
        planned_at=at, due_at=due, state="skipped" if reason else "waiting", reason=reason
    )


def _too_late(
    schedule: records.Schedule,
    due: datetime.datetime,
    now: datetime.datetime,
    *,
    on_time: bool = False,
) -> str | None:
    late = (now - due).total_seconds()
    allowed = min(schedule.grace_seconds, ON_TIME_SECONDS) if on_time else schedule.grace_seconds
    if late <= allowed:
        return None
    limit = 'the limit with catchup "skip"' if on_time else "the grace period"
    return f"missed: {values.elapsed(late)} late, {limit} is {values.elapsed(allowed)}"


def next_step(
    schedule: records.Schedule,
    trigger: records.Trigger,
    now: datetime.datetime,
    *,
    others: Iterable[records.Trigger] = (),
    is_live: bool,
) -> tuple[Literal["fire", "keep", "skip"], str | None]:
    """Return what to do with a waiting trigger, and why it is skipped or still waits.

    Args:
        others: the other waiting triggers of the schedule.
        is_live: jobs of an earlier trigger have not ended.
    """
    if schedule.state == "removed":
        return "skip", "removed"
    if not trigger.by_hand:
        if schedule.is_paused:
            return "skip", "paused"
        if trigger.due_at > now:
            return "keep", None
        before = f"; before that: {trigger.reason}" if trigger.reason else ""
        is_overtaken = any(
            other.planned_at > trigger.planned_at and other.due_at <= now and not other.by_hand
            for other in others
        )
        if schedule.catchup != "all" and schedule.overlap != "queue" and is_overtaken:
            came = "the next planned time came"
            reason = came if before else "no controller pass before the next planned time"
            return "skip", f"missed: {reason}{before}"
        if too_late := _too_late(schedule, trigger.due_at, now):
            return "skip", too_late + before
    if not is_live or schedule.overlap == "allow":
        return "fire", None
    if schedule.overlap == "queue":
        return "keep", "an earlier run has not ended"
    return "skip", "overlap: an earlier run has not ended"
