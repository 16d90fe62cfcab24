"""Types of option values: durations, times, ranges and lists."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from orchestrator.cli import session

COUNT = click.IntRange(min=1, max=10**9)
#: A number that begins at 0.
INDEX = click.IntRange(min=0, max=10**9)
INPUT_FILE = click.Path(exists=True, dir_okay=False)


class WrittenPath(click.Path):
    """A file or folder that the command writes where the user says."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; not for a computer that may only look."""
        if ctx is not None and session.is_confined(ctx):
            self.fail("this connection is read-only: no file of your choice is written", param, ctx)
        return super().convert(value, param, ctx)


OUTPUT_FILE = WrittenPath(dir_okay=False, path_type=Path)
OUTPUT_FOLDER = WrittenPath(file_okay=False, path_type=Path)
OUTPUT_PATH = WrittenPath(path_type=Path)

#: Longest duration: a later planned time could not be stored.
_MAX_DAYS = 366
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(?:\d+[smhdw])+", re.ASCII)
_SIZE = re.compile(
    r"(?P<number>\d{1,15}(?:\.\d{1,15})?) ?(?:(?P<prefix>[KMGTP])(?P<binary>i)?)?B?",
    re.ASCII | re.IGNORECASE,
)
_AGO = re.compile(
    r"(?:now *-)? *(?P<count>\d+) *"
    r"(?P<unit>seconds?|secs?|minutes?|mins?|hours?|days?|weeks?|[smhdw])(?: +ago)?"
)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")
#: sacct's words for an hour of the day (man sacct, "Time values"); `today` is midnight.
_HOURS = {"midnight": 0, "today": 0, "noon": 12, "teatime": 16}


class FloatRange(click.FloatRange):
    """A range that refuses `nan`, which click accepts because it is not outside of any range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def seconds(*, least: float = 0) -> Callable[[str], float]:
    """Return a parameter type. It refuses `nan`, a time-out that never passes."""

    def convert(text: str) -> float:
        number = click.FLOAT(text)
        if not number >= least:
            raise click.BadParameter(f"{text!r}: must be a number of seconds, {least:g} or more")
        return number

    return convert


def duration(text: str) -> int:
    """Return the seconds of `90`, `10m`, `6h`, `1h30m` or `2d`."""
    words = text.strip().lower()
    if words.isascii() and words.isdecimal():
        words += "s"
    if not _DURATION.fullmatch(words):
        raise click.BadParameter(f"{text!r} is not a duration: write 90s, 10m, 6h or 1d")
    longest = datetime.timedelta(days=_MAX_DAYS)
    try:
        parts = re.findall(r"(\d+)([smhdw])", words)
        lengths = (datetime.timedelta(**{_UNITS[unit]: int(count)}) for count, unit in parts)
        total = sum(lengths, datetime.timedelta())
    except (OverflowError, ValueError):
        # ValueError: int() refuses more than 4,300 digits.
        total = datetime.timedelta.max
    if total > longest:
        raise click.BadParameter(f"{text!r} is too long: write at most {_MAX_DAYS}d")
    return int(total.total_seconds())


def size(text: str) -> int:
    """Return the bytes of `500MB`, `1.5GB`, `2TiB` or `4096`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size: write 500MB, 1.5GB, 2TB or 1GiB")
    exponent = "KMGTP".index(match["prefix"].upper()) + 1 if match["prefix"] else 0
    return int(float(match["number"]) * (1024 if match["binary"] else 1000) ** exponent)


def time(text: str) -> datetime.datetime:
    """Return a point in time, written in the formats of sacct."""
    return time_before(text, datetime.datetime.now(datetime.UTC))


def time_before(text: str, now: datetime.datetime) -> datetime.datetime:
    """Return the time that `text` means; only a written date may be after `now`.

    Accepts `2026-11-20`, `2026-11-20T10:05`, `10:05` (the last time it was), `yesterday`, `today`,
    `noon`, `now`, `2hours`, `now-2hours`, `2 hours ago`. Without a zone it is local time.
    """
    words = " ".join(text.lower().split())
    local = now.astimezone()
    try:
        if words == "now":
            return now
        if match := _AGO.fullmatch(words):
            return now - datetime.timedelta(**{_UNITS[match["unit"][0]]: int(match["count"])})
        if words == "yesterday":
            return _on_day(local, datetime.time(), days_ago=1)
        if words in _HOURS:
            return _latest(local, datetime.time(_HOURS[words]))
        if match := _CLOCK.fullmatch(words):
            hour, minute, second = (int(part or 0) for part in match.groups())
            return _latest(local, datetime.time(hour, minute, second))
        at = datetime.datetime.fromisoformat(text.strip())
        return (at if at.tzinfo else at.astimezone()).astimezone(datetime.UTC)
    except (OverflowError, ValueError) as exc:
        raise click.BadParameter(
            f"{text!r} is not a time: write 2026-11-20, 2026-11-20T10:05, 10:05, yesterday, 3days "
            "or now-2hours"
        ) from exc


def _latest(local: datetime.datetime, clock: datetime.time) -> datetime.datetime:
    today = _on_day(local, clock, days_ago=0)
    return today if today <= local else _on_day(local, clock, days_ago=1)


def _on_day(local: datetime.datetime, clock: datetime.time, *, days_ago: int) -> datetime.datetime:
    day = local.date() - datetime.timedelta(days=days_ago)
    # astimezone() takes the UTC offset of that day: daylight saving time may have changed since.
    return datetime.datetime.combine(day, clock).astimezone(datetime.UTC)


def number_range(text: str) -> tuple[int | None, int | None]:
    """Return the ends of `A:B`, `A:`, `:B` or one number."""
    first, colon, last = text.partition(":")
    try:
        ends = [int(end) if end.strip() else None for end in (first, last if colon else first)]
    except ValueError:
        ends = []
    # SQLite's integers have 64 bits.
    if not text.strip(": ") or not ends or any(abs(end or 0) >= 2**63 for end in ends):
        raise click.BadParameter(f"{text!r} is not a range: write A:B, A:, :B or one number")
    begin, end = ends
    if begin is not None and end is not None and begin > end:
        raise click.BadParameter(f"{text!r} ends before it begins: write {end}:{begin}")
    return begin, end


def names_list(text: str) -> tuple[str, ...]:
    """Return the names of a list separated by commas. An empty name may be an unset variable."""
    names = tuple(text.split(","))
    if not all(names):
        raise click.BadParameter(f"{text!r} contains an empty name")
    return names
