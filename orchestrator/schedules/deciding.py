"""What becomes of a planned time: it fires, it waits, or it is skipped and says why.

Nothing here knows a clock or a database: what is decided is stored, each planned time once, and
what waits is looked at again with each pass.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import itertools
from collections.abc import Iterable

from orchestrator.schedules import records, times
from orchestrator.toml import values

#: With catchup "skip" a planned time that is later than this counts as missed. Longer than the
#: interval of any driver that `schedule install` sets up, and than scrontab's own delays.
ON_TIME_SECONDS = 600
#: Planned times that are decided in one call.
MOST = 1000
#: Of planned times that are skipped together, so many have an entry each; one entry stands for all
#: those before. A month of minutes would be 43,200 entries.
SINGLE = 100
_FIRST_WINDOW = datetime.timedelta(hours=1)


def decide(
    rule: records.Rule, since: datetime.datetime, now: datetime.datetime, *, most: int = MOST
) -> records.Decided:
    """Decide about the planned times after `since` and up to `now`, the first `most` of them.

    What waits is due then, or later by its jitter.
    """
    folded = _folded(rule, since, now)
    if folded is not None:
        since = folded.planned_at
    found: list[datetime.datetime] = []
    more = False
    for at in rule.calendar.after(since):
        if at > now:
            break
        if len(found) == most:
            more = True
            break
        found.append(at)
    planned = tuple(_decided(rule, at, now, is_latest=not more and at == found[-1]) for at in found)
    if folded is not None:
        planned = (folded, *planned)
    return records.Decided(planned=planned, until=found[-1] if found else since, more=more)


def _folded(
    rule: records.Rule, since: datetime.datetime, now: datetime.datetime
) -> records.Planned | None:
    """Return the entry for what is skipped before the last SINGLE planned times; none: there is not
    so much.
    """
    last = now
    if rule.catchup == "all" and not rule.paused:
        last = now - datetime.timedelta(seconds=rule.grace_seconds + rule.jitter_seconds + 1)
    newest = _newest(rule.calendar, since, last)
    if len(newest) <= SINGLE:
        return None
    first, at = next(rule.calendar.after(since)), newest[0]
    alone = _decided(rule, at, now, is_latest=False)
    if first == at:
        return alone
    reason = f"{alone.reason}; so are all planned times since {first:%Y-%m-%dT%H:%MZ}"
    return dataclasses.replace(alone, reason=reason, first_at=first)


def _newest(
    calendar: times.Calendar, since: datetime.datetime, last: datetime.datetime
) -> list[datetime.datetime]:
    """Return the newest SINGLE + 1 planned times of an interval, fewer where it has no more.

    Years of them are not walked through: the end of the interval is searched, further back each
    time.
    """
    window = _FIRST_WINDOW
    while True:
        begin = max(since, last - window) if window < last - since else since
        found = list(itertools.takewhile(lambda at: at <= last, calendar.after(begin)))
        if len(found) > SINGLE or begin == since:
            return found[-SINGLE - 1 :]
        window *= 2


def _decided(
    rule: records.Rule, at: datetime.datetime, now: datetime.datetime, is_latest: bool
) -> records.Planned:
    due = rule.due(at)
    reason = None
    if rule.paused:
        reason = "paused"
    elif rule.catchup != "all" and not is_latest:
        reason = "missed: nobody looked before the next planned time came"
    else:
        reason = _too_late(rule, due, now, in_time=rule.catchup == "skip")
    return records.Planned(
        planned_at=at, due_at=due, state="skipped" if reason else "waiting", reason=reason
    )


def _too_late(
    rule: records.Rule, due: datetime.datetime, now: datetime.datetime, *, in_time: bool = False
) -> str | None:
    late = (now - due).total_seconds()
    allowed = min(rule.grace_seconds, ON_TIME_SECONDS) if in_time else rule.grace_seconds
    if late <= allowed:
        return None
    name = 'with catchup "skip" the limit' if in_time else "its grace"
    return f"missed: {values.elapsed(late)} late, {name} is {values.elapsed(allowed)}"


class Step(enum.Enum):
    """What to do with a waiting trigger."""

    FIRE = "fire"
    KEEP = "keep"
    SKIP = "skip"


def next_step(
    rule: records.Rule,
    trigger: records.Trigger,
    now: datetime.datetime,
    *,
    others: Iterable[records.Trigger] = (),
    is_live: bool,
) -> tuple[Step, str | None]:
    """Return what to do with a waiting trigger, and why it is skipped or stays waiting.

    `others` are the other waiting triggers. `is_live`: jobs of an earlier trigger have not ended.
    """
    if not trigger.by_hand:
        if rule.paused:
            return Step.SKIP, "paused"
        if trigger.due_at > now:
            return Step.KEEP, None
        why = f"; before that: {trigger.reason}" if trigger.reason else ""
        if rule.catchup != "all" and rule.overlap != "queue" and _newer(trigger, others, now):
            came = "the next planned time came"
            return Step.SKIP, f"missed: {came if why else f'nobody looked before {came}'}{why}"
        if reason := _too_late(rule, trigger.due_at, now):
            return Step.SKIP, reason + why
    if not is_live or rule.overlap == "allow":
        return Step.FIRE, None
    if rule.overlap == "queue":
        return Step.KEEP, "waits for the end of an earlier one"
    return Step.SKIP, "overlap: an earlier one has not ended"


def _newer(
    trigger: records.Trigger, others: Iterable[records.Trigger], now: datetime.datetime
) -> bool:
    return any(
        other.planned_at > trigger.planned_at and other.due_at <= now and not other.by_hand
        for other in others
    )
