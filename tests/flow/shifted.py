"""Runs the orchestrator command on a host whose clock is wrong by SHIFT_SECONDS.

Only the wall clock is shifted; the time since boot is unaffected, as on such a host.
"""

from __future__ import annotations

import datetime
import os
import runpy
import sys
import time

SHIFT_SECONDS = float(os.environ["SHIFT_SECONDS"])
REAL_TIME, REAL_DATETIME = time.time, datetime.datetime


def shifted_time() -> float:
    return REAL_TIME() + SHIFT_SECONDS


class AnyDatetime(type):
    """Real and shifted times are of one type, as on a real host."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, REAL_DATETIME)


class ShiftedDatetime(REAL_DATETIME, metaclass=AnyDatetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        return REAL_DATETIME.fromtimestamp(shifted_time(), tz)


time.time = shifted_time
datetime.datetime = ShiftedDatetime  # type: ignore[misc]

try:
    from orchestrator.controller.session import clock_check
except ImportError:
    pass
else:
    # The kernel of this host does not know that its clock is wrong.
    clock_check.is_synchronized = lambda: False

sys.argv[0] = "orchestrator"
runpy.run_module("orchestrator", run_name="__main__", alter_sys=True)
