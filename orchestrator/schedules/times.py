"""Planned times: a cron expression on the clocks of a zone.

cronsim finds the times of day on a clock that never changes; what a change of the clock does to
them is decided here, as Debian's cron does (man 8 cron):

- An expression that names minute and hour (neither begins with `*`) is of times of day. One that
  the clocks leap over is planned for the moment after the leap, one that is there twice for the
  first of the two: so each planned day has it once.
- Any other is of intervals (`*/15 * * * *`): it follows the clock that people see, over the hour
  that is there twice, too.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import heapq
import re
import zoneinfo
from collections.abc import Iterator

import cronsim

from orchestrator import errors

#: As in man 5 crontab; @reboot is no time.
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
UTC = datetime.UTC
#: All minutes, hours, days, months and weekdays one by one have 400.
_CRON_CHARACTERS = 1000
#: The longest of IANA's names has 32 characters and three parts.
_ZONE_CHARACTERS = 64
_ZONE = re.compile(rf"(?=.{{1,{_ZONE_CHARACTERS}}}\Z)[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){{0,3}}")
_MINUTE = datetime.timedelta(minutes=1)
#: No clock was ever put back by as much (Pacific/Kwajalein by 23 hours, 1969).
_DAY = datetime.timedelta(days=1)


class ScheduleError(errors.OrchestratorError):
    """This cannot be planned."""

    exit_code = 2


@dataclasses.dataclass(frozen=True)
class Calendar:
    """A cron expression in a zone; ScheduleError where either is none."""

    #: five fields, or one of ALIASES
    cron: str
    #: IANA name
    tz: str

    def __post_init__(self) -> None:
        _ = self.zone
        if len(self.cron) > _CRON_CHARACTERS:
            raise ScheduleError(f"a cron expression has at most {_CRON_CHARACTERS} characters")
        fields = self._fields
        if len(fields.split()) != 5:
            raise ScheduleError(
                f'"{self.cron}" is no cron expression: write five fields, minute hour day month '
                f'weekday, such as "0 2 * * 1-5", or one of {", ".join(ALIASES)}'
            )
        try:
            first = next(cronsim.CronSim(fields, datetime.datetime(2000, 1, 1)), None)
        # ValueError: more digits than int() takes
        except (cronsim.CronSimError, ValueError) as exc:
            told = str(exc).replace("Bad ", "")
            raise ScheduleError(
                f'"{self.cron}" is no cron expression: its {told} cannot be read, or never comes'
            ) from exc
        if first is None:
            raise ScheduleError(f'"{self.cron}" never comes in 50 years')

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        try:
            # zoneinfo looks for files and packages of that name, part by part.
            if not _ZONE.fullmatch(self.tz):
                raise ValueError("not a name of a zone")
            return zoneinfo.ZoneInfo(self.tz)
        except (KeyError, ValueError, OSError) as exc:
            if zoneinfo.TZPATH and zoneinfo.available_timezones():
                cure = "write an IANA name such as Europe/Oslo or UTC"
            else:
                cure = "this host has no /usr/share/zoneinfo; `pip install tzdata` brings the zones"
            tz = ascii(self.tz[:_ZONE_CHARACTERS])
            raise ScheduleError(f"no time zone {tz} here: {cure}") from exc

    @property
    def names_times(self) -> bool:
        """Return whether it is of times of day, and not of intervals."""
        minute, hour, *_ = self._fields.split()
        return not minute.startswith("*") and not hour.startswith("*")

    @property
    def _fields(self) -> str:
        return ALIASES.get(self.cron.strip().lower(), self.cron)

    def after(self, moment: datetime.datetime) -> Iterator[datetime.datetime]:
        """Yield the planned times after this one, in UTC, each once and in order."""
        for one in self.moments(moment):
            yield one.at

    def moments(self, after: datetime.datetime) -> Iterator[Moment]:
        """Yield the planned times after this one, with the times of day that they stand for."""
        zone, names_times = self.zone, self.names_times
        last = after.astimezone(UTC)
        later: list[Moment] = []
        for wall in cronsim.CronSim(self._fields, _first_wall(last, zone)):
            first, *second = _instants(wall, zone)
            exists = _wall(first, zone) == wall
            if names_times or exists:
                heapq.heappush(later, Moment(at=first, wall=wall))
            if not names_times:
                for at in second:
                    heapq.heappush(later, Moment(at=at, wall=wall))
            # What any later time of day stands for is no earlier than the first of this one.
            while later and later[0].at < first:
                found = heapq.heappop(later)
                if found.at > last:
                    last = found.at
                    yield found
        while later:
            found = heapq.heappop(later)
            if found.at > last:
                last = found.at
                yield found


@functools.total_ordering
@dataclasses.dataclass(frozen=True, kw_only=True)
class Moment:
    """One planned time."""

    #: UTC
    at: datetime.datetime
    #: the time of day that the expression means; the clocks may leap over it
    wall: datetime.datetime

    def __lt__(self, other: Moment) -> bool:
        return (self.at, self.wall) < (other.at, other.wall)


def moments(calendar: Calendar, after: datetime.datetime, count: int) -> list[Moment]:
    """Return the next planned times, fewer where no more come."""
    found: list[Moment] = []
    for moment in calendar.moments(after):
        if len(found) == count:
            break
        found.append(moment)
    return found


def _first_wall(after: datetime.datetime, zone: zoneinfo.ZoneInfo) -> datetime.datetime:
    """Return a time of day before which no clock shows anything after this moment.

    Clocks that will be put back show some times once more.
    """
    now = after.astimezone(zone)
    shown_again = _offset(now) - _offset((after + _DAY).astimezone(zone))
    return now.replace(tzinfo=None, microsecond=0) - max(shown_again, datetime.timedelta())


def _offset(at: datetime.datetime) -> datetime.timedelta:
    return at.utcoffset() or datetime.timedelta()


def _instants(wall: datetime.datetime, zone: zoneinfo.ZoneInfo) -> list[datetime.datetime]:
    """Return when clocks of the zone show this: twice where they were put back.

    Where they leap over it, the moment after the leap.
    """
    early, late = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if early == late:
        return [early]
    if early < late:
        return [early, late]
    # In a leap the offset of before gives a moment after it, and that of after one before it.
    there = wall
    while _wall(there.replace(tzinfo=zone).astimezone(UTC), zone) != there:
        there += _MINUTE
    return [there.replace(tzinfo=zone).astimezone(UTC)]


def _wall(at: datetime.datetime, zone: zoneinfo.ZoneInfo) -> datetime.datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def clock_change(day: datetime.date, zone: zoneinfo.ZoneInfo) -> datetime.timedelta:
    """Return by how much clocks of the zone are put forward on this day; negative: back."""
    midnight = datetime.datetime.combine(day, datetime.time(), tzinfo=zone)
    return _offset(midnight + _DAY) - _offset(midnight)


def note(moment: Moment, zone: zoneinfo.ZoneInfo) -> str:
    """Return what a change of the clocks does on that day; "" on all other days."""
    local = moment.at.astimezone(zone)
    change = clock_change(moment.wall.date(), zone)
    if not change:
        return ""
    way = "forward" if change > datetime.timedelta() else "back"
    told = f"the clocks go {way} by {_clock(abs(change))}"
    if local.replace(tzinfo=None) != moment.wall:
        return f"{told}; {moment.wall:%H:%M} does not come"
    if _offset(local) != _offset(local.replace(fold=1)):
        return f"{told}; the first {moment.wall:%H:%M} of two"
    if local.fold:
        return f"{told}; the second {moment.wall:%H:%M} of two"
    return told


def _clock(length: datetime.timedelta) -> str:
    minutes = int(length.total_seconds()) // 60
    return f"{minutes // 60}:{minutes % 60:02}"
