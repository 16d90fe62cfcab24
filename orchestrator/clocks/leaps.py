"""Leaps of this host's clock: each reading is compared with the one before."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.text import times
from orchestrator.toml import values

#: Accepted difference between clocks, and between two readings. NTP steps for larger ones.
TOLERANCE = datetime.timedelta(minutes=5)
#: After a reboot, or on another host, the time between two readings cannot be measured. If the gap
#: is longer than this, other clocks are consulted.
ASKED_AFTER = datetime.timedelta(hours=1)
#: If there are no other clocks, a gap longer than this may be a wrong clock as well as a machine
#: that was off.
USUAL_GAP = datetime.timedelta(days=1)
#: Without another clock a leap is accepted after this time. NTP clients poll their servers every
#: 17 (ntpd, chrony) to 34 minutes (systemd-timesyncd), and have corrected a wrong clock by then.
BELIEVED_AFTER_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """The time of a host's clock, and the time since boot."""

    #: UTC
    at: datetime.datetime
    #: since boot, including suspend; setting the clock does not change it
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
class Doubt:
    """A leap that nothing has confirmed yet."""

    #: the first reading after the leap
    since: Reading
    #: the last reading for which other clocks were consulted
    asked: Reading
    leap_seconds: float
    #: names of other clocks that differ from this host's; "": there are no other clocks
    contradicted_by: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    trusted: Reading
    doubt: Doubt | None = None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=datetime.datetime.isoformat)

    @classmethod
    def of_json(cls, text: str) -> State | None:
        """Return what to_json() wrote; None for the text of another version."""
        try:
            state = json.loads(text)
            doubt = state["doubt"]
            if doubt is not None:
                since, asked = _reading(doubt.pop("since")), _reading(doubt.pop("asked"))
                doubt = Doubt(since=since, asked=asked, **doubt)
            return cls(trusted=_reading(state["trusted"]), doubt=doubt)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def _reading(fields: dict[str, Any]) -> Reading:
    return Reading(**{**fields, "at": datetime.datetime.fromisoformat(fields["at"])})


def leap(before: Reading, now: Reading) -> datetime.timedelta:
    """Return by how much the clock leapt; after a reboot or on another host, the time between."""
    passed = now.at - before.at
    if now.is_of_same_boot(before):
        return passed - datetime.timedelta(seconds=now.seconds_since(before))
    return passed


def assess(
    before: State | None,
    now: Reading,
    other_clocks: Callable[[], Mapping[str, datetime.timedelta]],
) -> State:
    """Return whether this reading can be trusted.

    other_clocks: returns the names of other clocks, "Slurm's clock", and how far each is ahead of
    this host's clock. It is called only after a leap.
    """
    if before is None:
        return State(trusted=now)
    is_same_boot = now.is_of_same_boot(before.trusted)
    leapt = leap(before.trusted, now)
    if -TOLERANCE <= leapt <= (TOLERANCE if is_same_boot else ASKED_AFTER):
        return State(trusted=now)
    clocks = other_clocks()
    differing = [name for name, ahead in clocks.items() if abs(ahead) > TOLERANCE]
    if clocks and not differing:
        return State(trusted=now)
    doubt = before.doubt if before.doubt and _continues(before.doubt.since, now) else None
    if not clocks:
        is_usual_gap = not is_same_boot and -TOLERANCE <= leapt <= USUAL_GAP
        if is_usual_gap or (doubt and now.seconds_since(doubt.since) >= BELIEVED_AFTER_SECONDS):
            return State(trusted=now)
    doubt = Doubt(
        since=doubt.since if doubt else now,
        asked=now,
        leap_seconds=doubt.leap_seconds if doubt else leapt.total_seconds(),
        contradicted_by=", ".join(differing),
    )
    return State(trusted=before.trusted, doubt=doubt)


def _continues(since: Reading, now: Reading) -> bool:
    return now.is_of_same_boot(since) and abs(leap(since, now)) <= TOLERANCE


def explanation(state: State) -> str:
    """Return what is wrong with the clock, the consequence and the fix; "" if it is trusted."""
    doubt = state.doubt
    if doubt is None:
        return ""
    since, trusted = doubt.since, state.trusted
    length = values.elapsed(round(abs(doubt.leap_seconds)))
    is_forward = doubt.leap_seconds > 0
    if since.is_of_same_boot(trusted):
        expected = since.at - datetime.timedelta(seconds=doubt.leap_seconds)
        leapt = (
            f"The clock of {since.host} jumped {'forward' if is_forward else 'back'} by {length}: "
            f"it showed {times.local(since.at)} when {times.local(expected)} was expected."
        )
    else:
        leapt = (
            f"The clock of {since.host} showed {times.local(since.at)}, {length} "
            f"{'after' if is_forward else 'before'} the last controller pass, on {trusted.host} at "
            f"{times.local(trusted.at)}."
        )
    until = f"Without another jump it is trusted after {BELIEVED_AFTER_SECONDS / 60:.0f} minutes."
    if doubt.contradicted_by:
        until = f"{doubt.contradicted_by} shows another time."
    return (
        f"{leapt} {until} Until the clock is trusted, schedules, recovery, deferred submissions, "
        "graphs, alerts and notices are paused. If the clock is wrong, set it (NTP); if it is "
        "right, run `orchestrator tick --trust-clock`."
    )
