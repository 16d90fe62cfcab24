"""Copies of this process, which have already loaded what it has."""

from __future__ import annotations

import os


def detached() -> bool:
    """Fork a process with its own session, for which nobody has to wait.

    Returns True in that process, and False in this one.
    """
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return False
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
    except BaseException:
        os._exit(1)
    return True


def child() -> int:
    """Fork; return the PID of the child, and 0 in the child."""
    return os.fork()
