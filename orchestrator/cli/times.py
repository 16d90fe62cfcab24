"""Times as people and sacct write them. Pure."""

from __future__ import annotations

import datetime
import re

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO = re.compile(
    r"(?:now *-)? *(?P<count>\d+) *"
    r"(?P<unit>seconds?|secs?|minutes?|mins?|hours?|days?|weeks?|[smhdw])(?: +ago)?"
)
_LENGTH = re.compile(r"(?:\d+[smhdw])+")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")
#: sacct's words for an hour of the day (man sacct, "Time values"); `today` is midnight.
_HOURS = {"midnight": 0, "today": 0, "noon": 12, "teatime": 16}


def since(text: str, now: datetime.datetime) -> datetime.datetime:
    """Return the time that `text` means, never later than now unless its date is written out.

    `2026-11-20`, `2026-11-20T10:05`, `10:05` (the last time it was), `yesterday`, `today`, `noon`,
    `now`, `2hours`, `now-2hours`, `2 hours ago`. Without a zone it is local. ValueError else.
    """
    words = " ".join(text.lower().split())
    local = now.astimezone()
    if words == "now":
        return now
    if match := _AGO.fullmatch(words):
        unit = _UNITS[match["unit"][0]]
        try:
            return now - datetime.timedelta(**{unit: int(match["count"])})
        except OverflowError as exc:
            raise ValueError(f"too long ago: {text}") from exc
    if words == "yesterday":
        return _at(local, datetime.time(), days_ago=1)
    if words in _HOURS:
        return _last(local, datetime.time(_HOURS[words]))
    if match := _CLOCK.fullmatch(words):
        hour, minute, second = (int(part or 0) for part in match.groups())
        return _last(local, datetime.time(hour, minute, second))
    at = datetime.datetime.fromisoformat(text.strip())
    try:
        return (at if at.tzinfo else at.astimezone()).astimezone(datetime.UTC)
    except OverflowError as exc:
        raise ValueError(f"too long ago: {text}") from exc


def seconds(text: str) -> int:
    """Return the seconds of `90`, `10m`, `6h`, `1h30m`, `2d`; ValueError else."""
    text = text.strip().lower()
    if text.isascii() and text.isdecimal():
        try:
            found = datetime.timedelta(seconds=int(text))
        except OverflowError as exc:
            raise ValueError(f"too long: {text!r}") from exc
    elif _LENGTH.fullmatch(text):
        parts = re.findall(r"(\d+)([smhdw])", text)
        try:
            found = sum(
                (datetime.timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts),
                datetime.timedelta(),
            )
        except OverflowError as exc:
            raise ValueError(f"too long: {text!r}") from exc
    else:
        raise ValueError(f"not a length of time: {text!r}")
    return int(found.total_seconds())


def _last(local: datetime.datetime, clock: datetime.time) -> datetime.datetime:
    today = _at(local, clock, days_ago=0)
    return today if today <= local else _at(local, clock, days_ago=1)


def _at(local: datetime.datetime, clock: datetime.time, *, days_ago: int) -> datetime.datetime:
    day = local.date() - datetime.timedelta(days=days_ago)
    # The zone is looked up for that moment: clocks may have changed meanwhile.
    return datetime.datetime.combine(day, clock).astimezone(datetime.UTC)
