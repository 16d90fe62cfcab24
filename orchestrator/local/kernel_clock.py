"""The clocks of this machine's kernel."""

from __future__ import annotations

import ctypes
import time

#: adjtimex(2): the clock is not synchronized.
_TIME_ERROR = 5
#: Larger than struct timex on all platforms (208 bytes on 64 bits).
_TIMEX_BYTES = 512


def boot_seconds() -> float:
    """Return the seconds since boot, those of a suspended machine too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_synchronized() -> bool:
    """Return whether the kernel was told, since the clock was last set, that NTP keeps it.

    Setting the clock clears that mark; the NTP client sets it again once it agrees with its server.
    """
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    # With no mode in it, the call only asks. -1: there is no such call here.
    return ctypes.CDLL(None).adjtimex(buffer) not in (_TIME_ERROR, -1)
