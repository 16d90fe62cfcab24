"""Planned times, compared with a brute force over all minutes of one (--long: ten) years.

The brute force uses neither cronsim nor the modules under test: it parses the five fields itself,
and knows for each minute of UTC what the clocks of the zone show.
"""

from __future__ import annotations

import calendar
import datetime
import functools
import itertools
import zoneinfo
from typing import TypeAlias

import numpy as np
import pytest

from orchestrator.schedules import calendars

UTC = datetime.UTC
SLOW = pytest.mark.slow
#: With a leap day.
YEAR = datetime.datetime(2024, 1, 1, tzinfo=UTC), datetime.datetime(2025, 1, 1, tzinfo=UTC)
TEN_YEARS = datetime.datetime(2020, 1, 1, tzinfo=UTC), datetime.datetime(2030, 1, 1, tzinfo=UTC)
Period: TypeAlias = tuple[datetime.datetime, datetime.datetime]
ZONES = (
    "Europe/Oslo",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
)
#: Times near the clock changes of the five zones, month ends, leap days, weekdays, both days.
TIMES = (
    "30 2 * * *",
    "15 2 * * 0",
    "0,20,40 1-3 * * 6,7",
    "45 1 29 2 *",
    "10 2 31 * *",
    "0 2 1,15 * 1-5",
    "59 23 28-31 3,10 sun",
    "0 0 L * *",
    "30 2 LW * *",
    "20 2 * * 1#1",
)
INTERVALS = ("*/30 1-3 * * 6,0", "0 */6 * * *", "*/20 2 * 3,4,10,11 *", "30 * 1 * *")
MORE = (
    "@daily",
    "7 */5 * * *",
    "5/15 2 * * *",
    "0 3 */2 * 1",
    "0 1-5/2 * 1-12/3 *",
    "*/10 * * * *",
)
NAMES = {name.lower(): n for n, name in enumerate(calendar.month_abbr) if name}
DAYS = {name: n for n, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


def field(text: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    """The numbers of one field, as man 5 crontab describes it."""
    result: set[int] = set()
    for part in text.lower().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            begin, end = low, high
        else:
            begin = names.get(first) if first in names else int(first)
            end = (names.get(last) or int(last)) if last else (high if step else begin)
        result.update(range(begin, end + 1, int(step or 1)))
    return result


class Clocks:
    """What the clocks of a zone show at each minute of UTC."""

    def __init__(self, zone: str, period: Period) -> None:
        here = zoneinfo.ZoneInfo(zone)
        # A margin of a day at both ends; offsets change at full quarters of an hour alone.
        quarters = int((period[1] - period[0]).total_seconds()) // 900 + 192
        start = period[0] - datetime.timedelta(days=1)
        offsets = [
            int(
                (start + datetime.timedelta(minutes=15 * n))
                .astimezone(here)
                .utcoffset()
                .total_seconds()
            )
            // 60
            for n in range(quarters)
        ]
        self.offset = np.repeat(np.array(offsets, dtype=np.int32), 15)
        first = int(start.timestamp()) // 60
        self.utc = first + np.arange(len(self.offset), dtype=np.int32)
        self.wall = self.utc + self.offset
        self.first_day = int(self.wall[0]) // 1440
        self.days = np.arange(self.first_day, int(self.wall.max()) // 1440 + 1)
        self.day = (self.wall // 1440 - self.first_day).astype(np.int16)
        self.minute = (self.wall % 1440).astype(np.int16)
        self.peak = np.maximum.accumulate(self.wall)

    def first_utc(self, walls: np.ndarray) -> np.ndarray:
        """The first minute of UTC at which the clocks show each of these times, or a later one."""
        there = walls[(walls >= self.wall[0]) & (walls <= self.peak[-1])]
        return self.utc[np.searchsorted(self.peak, there)]


@functools.cache
def clocks(zone: str, period: Period) -> Clocks:
    return Clocks(zone, period)


def right_days(expression: str, days: np.ndarray) -> np.ndarray:
    """Which of these days since 1970 an expression means."""
    _, _, day, month, weekday = expression.split()
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    in_month = (dates - months).astype(int) + 1
    after = (months + np.timedelta64(1, "M")).astype("datetime64[D]")
    length = (after - months.astype("datetime64[D]")).astype(int)
    # 1970-01-01 was a Thursday.
    of_week = (days + 4) % 7
    if day == "L":
        right_day = in_month == length
    elif day == "LW":
        last = (days - in_month + length + 4) % 7
        right_day = in_month == length - np.select([last == 0, last == 6], [2, 1], 0)
    else:
        right_day = np.isin(in_month, list(field(day, 1, 31, {})))
    if "#" in weekday:
        name, nth = weekday.split("#")
        right_weekday = (of_week == int(name)) & ((in_month - 1) // 7 + 1 == int(nth))
    else:
        weekdays = {number % 7 for number in field(weekday, 0, 7, DAYS)}
        right_weekday = np.isin(of_week, list(weekdays))
    both = day.startswith("*") or weekday.startswith("*")
    right = (right_day & right_weekday) if both else (right_day | right_weekday)
    return right & np.isin(months.astype(int) % 12 + 1, list(field(month, 1, 12, NAMES)))


def right_minutes(expression: str) -> np.ndarray:
    """Which minutes of a day an expression means."""
    minute, hour, *_ = expression.split()
    every = np.arange(1440)
    in_hour = np.isin(every % 60, list(field(minute, 0, 59, {})))
    return in_hour & np.isin(every // 60, list(field(hour, 0, 23, {})))


def expected(expression: str, zone: str, period: Period) -> list[int]:
    """Minutes of UTC since 1970."""
    there = clocks(zone, period)
    minutes = right_minutes(expression)
    minute, hour, *_ = expression.split()
    if minute.startswith("*") or hour.startswith("*"):
        result = there.utc[right_days(expression, there.days)[there.day] & minutes[there.minute]]
    else:
        days = there.days[right_days(expression, there.days)]
        result = np.unique(
            there.first_utc((days[:, None] * 1440 + np.flatnonzero(minutes)).ravel())
        )
    low, high = (int(end.timestamp()) // 60 for end in period)
    return result[(result > low) & (result <= high)].tolist()


def planned(expression: str, zone: str, period: Period) -> list[int]:
    begin, end = period
    times = calendars.Calendar(expression, zone).after(begin)
    result = itertools.takewhile(lambda at: at <= end, times)
    return [int(at.timestamp()) // 60 for at in result]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "period",
    [pytest.param(YEAR, id="leap year"), pytest.param(TEN_YEARS, id="10 years", marks=SLOW)],
)
def test_all_minutes(zone: str, period: Period) -> None:
    for expression in (*TIMES, *INTERVALS):
        times = expected(expression, zone, period)
        assert planned(expression, zone, period) == times, expression


@SLOW
@pytest.mark.parametrize("zone", [*ZONES, "America/Sao_Paulo", "Asia/Gaza", "Pacific/Chatham"])
def test_more_expressions_over_ten_years(zone: str) -> None:
    for expression in MORE:
        plain = calendars.ALIASES.get(expression, expression)
        times = expected(plain, zone, TEN_YEARS)
        assert planned(expression, zone, TEN_YEARS) == times, expression


@pytest.mark.parametrize("zone", ZONES)
def test_the_result_does_not_depend_on_the_beginning(zone: str) -> None:
    """Around each change of the clocks in a year."""
    there = clocks(zone, YEAR)
    changes = there.utc[1:][np.diff(there.offset) != 0]
    both = [calendars.Calendar(item, zone) for item in ("30 2 * * *", "*/30 * * * *")]
    for change in changes[:2]:
        for calendar_ in both:
            begin = datetime.datetime.fromtimestamp(int(change) * 60, UTC)
            begin -= datetime.timedelta(hours=3)
            every = list(itertools.islice(calendar_.after(begin), 40))
            for minutes in range(0, 400, 11):
                after = begin + datetime.timedelta(minutes=minutes)
                left = [at for at in every if at > after]
                assert list(itertools.islice(calendar_.after(after), len(left))) == left


@pytest.mark.parametrize(
    "cron, message",
    [
        ("0 2 * *", "write five fields"),
        ("@reboot", "write five fields"),
        ("0 0 0 2 * *", "write five fields"),
        ("61 2 * * *", "its minute is invalid or never occurs"),
        ("0 0 31 2 *", "its day-of-month is invalid or never occurs"),
    ],
)
def test_invalid_expressions(cron: str, message: str) -> None:
    with pytest.raises(calendars.ScheduleError, match=message):
        calendars.Calendar(cron, "UTC")


def test_an_unknown_time_zone() -> None:
    with pytest.raises(calendars.ScheduleError) as caught:
        calendars.Calendar("@daily", "Europe/Olso")
    message = "unknown time zone 'Europe/Olso': write an IANA name such as Europe/Oslo or UTC"
    assert str(caught.value) == message


def test_notes_of_changes() -> None:
    def notes(cron: str, day: str, count: int) -> list[str]:
        calendar_ = calendars.Calendar(cron, "Europe/Oslo")
        after = datetime.datetime.fromisoformat(day).astimezone(UTC)
        return [
            calendars.clock_change_note(moment, calendar_.zone)
            for moment in itertools.islice(calendar_.moments(after), count)
        ]

    spring, autumn = "2027-03-27T12:00+01:00", "2026-10-24T12:00+02:00"
    forward, back = "the clocks go forward by 1:00", "the clocks go back by 1:00"
    assert notes("30 2 * * *", spring, 2) == [f"{forward}; 02:30 is skipped", ""]
    assert notes("30 2 * * *", autumn, 2) == [f"{back}; the first 02:30 of two", ""]
    assert notes("0 5 * * *", autumn, 1) == [back]
    assert notes("30 * * * *", "2026-10-25T01:45+02:00", 3) == [
        f"{back}; the first 02:30 of two",
        f"{back}; the second 02:30 of two",
        back,
    ]
