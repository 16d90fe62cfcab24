"""Planned times: a cron expression in a time zone.

cronsim finds the times of day. Changes of the clock are handled as Debian's cron does (man 8 cron):

- An expression with a fixed minute and hour (neither begins with `*`) means times of day. A time
  that the clocks skip is planned for the moment after the change, and a time that comes twice for
  the first of the two: so each planned day has it once.
- Any other expression means intervals (`*/15 * * * *`): it follows the local clock, also in the
  hour that comes twice.
"""

from __future__ import annotations

import dataclasses
import datetime
import heapq
import re
import zoneinfo
from collections.abc import Iterator

import cronsim

from orchestrator import errors

#: As in man 5 crontab, without @reboot.
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
#: All minutes, hours, days, months and weekdays, listed one by one, have 400.
_MAX_CRON_CHARACTERS = 1000
#: The longest IANA name has 32 characters.
_MAX_ZONE_CHARACTERS = 64
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,3}")
_MINUTE = datetime.timedelta(minutes=1)
#: Clocks were never put back by as much (Pacific/Kwajalein by 23 hours, 1969).
_DAY = datetime.timedelta(days=1)


class ScheduleError(errors.OrchestratorError):
    """Not a valid cron expression or time zone."""

    exit_code = 2


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Moment:
    """One planned time."""

    #: UTC
    at: datetime.datetime
    #: the local time of the expression, which the clocks may skip
    wall: datetime.datetime


@dataclasses.dataclass(frozen=True)
class Calendar:
    """A cron expression in a time zone. Raises ScheduleError."""

    #: five fields, or one of ALIASES
    cron: str
    #: IANA name
    tz: str

    def __post_init__(self) -> None:
        _ = self.zone
        if len(self.cron) > _MAX_CRON_CHARACTERS:
            raise ScheduleError(f"a cron expression has at most {_MAX_CRON_CHARACTERS} characters")
        fields = self._fields
        if len(fields.split()) != 5:
            raise ScheduleError(
                f'"{self.cron}" is not a cron expression: write five fields, minute hour day month '
                f'weekday, such as "0 2 * * 1-5", or one of {", ".join(ALIASES)}'
            )
        try:
            first = next(cronsim.CronSim(fields, datetime.datetime(2000, 1, 1)), None)
        # ValueError: more digits than int() accepts
        except (cronsim.CronSimError, ValueError) as exc:
            field = str(exc).replace("Bad ", "")
            raise ScheduleError(
                f'"{self.cron}" is not a cron expression: its {field} is invalid or never occurs'
            ) from exc
        if first is None:
            raise ScheduleError(f'"{self.cron}" has no planned time in 50 years')

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        try:
            # zoneinfo would look for files and packages of that name.
            if not _ZONE.fullmatch(self.tz) or len(self.tz) > _MAX_ZONE_CHARACTERS:
                raise ValueError("not a zone name")
            return zoneinfo.ZoneInfo(self.tz)
        except (KeyError, ValueError, OSError) as exc:
            if zoneinfo.TZPATH and zoneinfo.available_timezones():
                fix = "write an IANA name such as Europe/Oslo or UTC"
            else:
                fix = "this host has no /usr/share/zoneinfo; run `pip install tzdata`"
            tz = ascii(self.tz[:_MAX_ZONE_CHARACTERS])
            raise ScheduleError(f"unknown time zone {tz}: {fix}") from exc

    @property
    def _fields(self) -> str:
        return ALIASES.get(self.cron.strip().lower(), self.cron)

    @property
    def _has_fixed_times(self) -> bool:
        minute, hour, *_ = self._fields.split()
        return not minute.startswith("*") and not hour.startswith("*")

    def after(self, moment: datetime.datetime) -> Iterator[datetime.datetime]:
        """Yield the planned times after this one in UTC, each once and in order."""
        for planned in self.moments(moment):
            yield planned.at

    def moments(self, after: datetime.datetime) -> Iterator[Moment]:
        """Yield the planned times after this one, with their local times."""
        last = after.astimezone(UTC)
        for moment in self._ordered(last):
            if moment.at > last:
                last = moment.at
                yield moment

    def _ordered(self, after: datetime.datetime) -> Iterator[Moment]:
        """Yield the planned times in order; some may be double, or not after `after`."""
        zone = self.zone
        pending: list[Moment] = []
        for wall in cronsim.CronSim(self._fields, _first_wall(after, zone)):
            first, *second = _instants(wall, zone)
            if self._has_fixed_times:
                instants = [first]
            else:
                instants = [first, *second] if _wall(first, zone) == wall else second
            for at in instants:
                heapq.heappush(pending, Moment(at=at, wall=wall))
            # Later local times are planned no earlier than this one.
            while pending and pending[0].at < first:
                yield heapq.heappop(pending)
        yield from sorted(pending)


def _first_wall(after: datetime.datetime, zone: zoneinfo.ZoneInfo) -> datetime.datetime:
    """Return a local time before which the clocks show nothing after this moment.

    If the clocks will be put back, they show some times again.
    """
    now = after.astimezone(zone)
    shown_again = _offset(now) - _offset((after + _DAY).astimezone(zone))
    return now.replace(tzinfo=None, microsecond=0) - max(shown_again, datetime.timedelta())


def _offset(at: datetime.datetime) -> datetime.timedelta:
    return at.utcoffset() or datetime.timedelta()


def _instants(wall: datetime.datetime, zone: zoneinfo.ZoneInfo) -> list[datetime.datetime]:
    """Return when the clocks show a local time: twice if they are put back then.

    For a local time that they skip, the moment after the change.
    """
    early, late = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if early <= late:
        return [early] if early == late else [early, late]
    # A skipped time: find the next one that exists.
    existing = wall
    while _wall(existing.replace(tzinfo=zone).astimezone(UTC), zone) != existing:
        existing += _MINUTE
    return [existing.replace(tzinfo=zone).astimezone(UTC)]


def _wall(at: datetime.datetime, zone: zoneinfo.ZoneInfo) -> datetime.datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def clock_change_note(moment: Moment, zone: zoneinfo.ZoneInfo) -> str:
    """Return how the clocks change on that day; "" if they do not."""
    midnight = datetime.datetime.combine(moment.wall.date(), datetime.time(), tzinfo=zone)
    change = _offset(midnight + _DAY) - _offset(midnight)
    if not change:
        return ""
    way = "forward" if change > datetime.timedelta() else "back"
    hours, minutes = divmod(int(abs(change).total_seconds()) // 60, 60)
    note = f"the clocks go {way} by {hours}:{minutes:02}"
    local = moment.at.astimezone(zone)
    if local.replace(tzinfo=None) != moment.wall:
        return f"{note}; {moment.wall:%H:%M} is skipped"
    if _offset(local) != _offset(local.replace(fold=1)):
        return f"{note}; the first {moment.wall:%H:%M} of two"
    if local.fold:
        return f"{note}; the second {moment.wall:%H:%M} of two"
    return note
