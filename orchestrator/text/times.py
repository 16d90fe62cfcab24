"""Times as text."""

from __future__ import annotations

import datetime


def local(at: datetime.datetime) -> str:
    """Return the local time, `2026-11-24 10:05:00`."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"
