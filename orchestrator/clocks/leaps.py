"""Whether the clock of this host can be trusted: each reading is compared with the last. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.toml import values

#: Clocks of hosts, and a clock with itself, may differ by so much. NTP corrects more with a step.
TOLERANCE = datetime.timedelta(minutes=5)
#: On another host, or after a reboot, the time between two readings cannot be measured: after
#: a longer gap other clocks are asked ...
ASKED_AFTER = datetime.timedelta(hours=1)
#: ... and where there are none, a longer gap is as likely a wrong clock as a machine that was off.
USUAL_GAP = datetime.timedelta(days=1)
#: Without another clock a leap is believed after so long. NTP clients poll their servers every
#: 17 (ntpd, chrony) to 34 minutes (systemd-timesyncd), and have corrected a wrong clock by then.
BELIEVED_AFTER_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """What a host's clock showed, and how long the host had been up."""

    #: UTC
    at: datetime.datetime
    #: since boot, time asleep included; no setting of the clock changes it
    boot_seconds: float
    boot_id: str
    host: str

    def is_of_same_boot(self, other: Reading) -> bool:
        mine, theirs = (self.host, self.boot_id), (other.host, other.boot_id)
        return bool(self.boot_id) and mine == theirs

    def seconds_since(self, other: Reading) -> float:
        """Return the true seconds between two readings of one boot."""
        return self.boot_seconds - other.boot_seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherClock:
    """Another clock."""

    #: "Slurm's clock"
    name: str
    #: how far it is ahead of this host's clock
    ahead: datetime.timedelta


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doubt:
    """A clock that leapt, and that nothing has confirmed yet."""

    #: the first reading after the leap
    since: Reading
    #: the newest reading for which other clocks were asked
    asked: Reading
    leap_seconds: float
    #: other clocks that differ from this host's; "": there are no other clocks
    contradicted_by: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """What is known of the clock."""

    trusted: Reading
    doubt: Doubt | None = None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=datetime.datetime.isoformat)

    @classmethod
    def of_json(cls, text: str) -> State | None:
        """Return what to_json() wrote; None where another version wrote it."""
        try:
            found = json.loads(text)
            doubt = found["doubt"]
            if doubt is not None:
                since, asked = _reading(doubt.pop("since")), _reading(doubt.pop("asked"))
                doubt = Doubt(since=since, asked=asked, **doubt)
            return cls(trusted=_reading(found["trusted"]), doubt=doubt)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def _reading(fields: dict[str, Any]) -> Reading:
    return Reading(**{**fields, "at": datetime.datetime.fromisoformat(fields["at"])})


def leap(before: Reading, now: Reading) -> datetime.timedelta:
    """Return by how much the clock leapt; of another host or boot, the time since the reading."""
    passed = now.at - before.at
    if now.is_of_same_boot(before):
        return passed - datetime.timedelta(seconds=now.seconds_since(before))
    return passed


def assess(before: State | None, now: Reading, ask: Callable[[], Sequence[OtherClock]]) -> State:
    """Return whether this reading can be trusted. `ask` is called where that is not plain."""
    if before is None:
        return State(trusted=now)
    same_boot = now.is_of_same_boot(before.trusted)
    leapt = leap(before.trusted, now)
    if -TOLERANCE <= leapt <= (TOLERANCE if same_boot else ASKED_AFTER):
        return State(trusted=now)
    witnesses = ask()
    differ = [one for one in witnesses if abs(one.ahead) > TOLERANCE]
    if witnesses and not differ:
        return State(trusted=now)
    doubt = before.doubt if before.doubt and _continues(before.doubt.since, now) else None
    if not witnesses:
        if not same_boot and -TOLERANCE <= leapt <= USUAL_GAP:
            return State(trusted=now)
        if doubt is not None and now.seconds_since(doubt.since) >= BELIEVED_AFTER_SECONDS:
            return State(trusted=now)
    return State(
        trusted=before.trusted,
        doubt=Doubt(
            since=doubt.since if doubt else now,
            asked=now,
            leap_seconds=leapt.total_seconds() if doubt is None else doubt.leap_seconds,
            contradicted_by=", ".join(one.name for one in differ),
        ),
    )


def _continues(since: Reading, now: Reading) -> bool:
    return now.is_of_same_boot(since) and abs(leap(since, now)) <= TOLERANCE


def explanation(state: State) -> str:
    """Return what is wrong with the clock, what waits, and what to do; "": it is trusted."""
    doubt = state.doubt
    if doubt is None:
        return ""
    since, trusted = doubt.since, state.trusted
    length = values.elapsed(round(abs(doubt.leap_seconds)))
    forward = doubt.leap_seconds > 0
    if since.is_of_same_boot(trusted):
        expected = since.at - datetime.timedelta(seconds=doubt.leap_seconds)
        told = (
            f"The clock of {since.host} leapt {'forward' if forward else 'back'} by {length}: "
            f"it showed {_shown(since.at)} when {_shown(expected)} was expected."
        )
    else:
        told = (
            f"The clock of {since.host} showed {_shown(since.at)}, {length} "
            f"{'after' if forward else 'before'} the last pass, which {trusted.host} made at "
            f"{_shown(trusted.at)}."
        )
    if doubt.contradicted_by:
        when = f"{doubt.contradicted_by} shows another time."
    else:
        minutes = BELIEVED_AFTER_SECONDS / 60
        when = f"Without another leap it is trusted after {minutes:.0f} minutes."
    return (
        f"{told} {when} Until then schedules, recovery, deferred submissions, graphs, alerts and "
        "notices wait. If the clock is wrong, set it (NTP); if it is right, run "
        "`orchestrator tick --trust-clock`."
    )


def _shown(at: datetime.datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"
