"""The lease: which process acts as the controller."""

from __future__ import annotations

import dataclasses
import datetime

from orchestrator import errors
from orchestrator.jobs import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lease:
    #: grows with each new holder
    fence: int
    #: the process that acts as the controller; None: no process does
    holder: records.Submitter | None
    #: serve or tick
    command: str
    since: datetime.datetime | None
    renewed_at: datetime.datetime | None
    #: grows with each renewal
    renewals: int
    #: another process may take it when it was not renewed for this long
    seconds: float
    #: time since the last renewal, by the clock of the database server or else of this host
    age_seconds: float

    @property
    def lapsed(self) -> bool:
        """Whether it seems not to have been renewed in time."""
        # The age is slightly negative if it was renewed after this host read its clock; an age
        # further below zero comes from a clock that differs.
        return not -self.seconds < self.age_seconds < self.seconds

    @property
    def holder_description(self) -> str:
        """The command, process, host and start of the holder; "nobody" without one."""
        if self.holder is None:
            return "nobody"
        since = "" if self.since is None else f", since {self.since.astimezone():%Y-%m-%d %H:%M:%S}"
        return f"`{self.command}` (process {self.holder.pid} on {self.holder.host}{since})"


def taken_over(lease: Lease | None) -> errors.FencedError:
    """Return the error of a controller whose lease another one took."""
    who = (
        " and stopped" if lease is None or lease.holder is None else f": {lease.holder_description}"
    )
    return errors.FencedError(f"Another controller took over{who}. This controller stops.")
