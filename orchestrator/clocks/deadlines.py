"""Time limits of a command, on a monotonic clock."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Self


class TimeUpError(Exception):
    """The time limit of a command is reached; nothing failed, so it is no OrchestratorError."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deadline:
    """The time at which work stops, to be continued by the next command; by default never."""

    #: on the clock
    at: float = math.inf
    clock: Callable[[], float] = time.monotonic

    @property
    def left_seconds(self) -> float:
        """The remaining time, 0 after the deadline."""
        return math.inf if self.at == math.inf else max(0.0, self.at - self.clock())

    @property
    def is_over(self) -> bool:
        return self.left_seconds == 0.0

    @property
    def is_finite(self) -> bool:
        return self.at != math.inf

    def earlier(self, other: Deadline) -> Deadline:
        """Return the earlier of two deadlines of the same clock."""
        return self if self.at <= other.at else other

    def share(self, parts: int) -> Self:
        """Return the end of the first of this many equal parts of the remaining time."""
        return self.within(self.left_seconds / parts)

    def within(self, seconds: float) -> Self:
        """Return this deadline or the one in this many seconds, whichever is earlier."""
        if seconds == math.inf:
            return self
        return dataclasses.replace(self, at=min(self.at, self.clock() + seconds))


NEVER = Deadline()
