"""Parses numbers, and the times that they stand for, as programs print them."""

from __future__ import annotations

import datetime
import math
import re

from orchestrator.patterns import regexes

METRIC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,63}")
UNIT_CHARACTERS = 32
#: of ordinary numbers
CHARACTERS = "0123456789.+-eE"

_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)(?:\.0)?", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(regexes.THOUSANDS)
_CLOCK = re.compile(r"(?:(?:([0-9]+) days?, )?([0-9]+):)?([0-9]{1,2}):([0-9]{2}(?:\.[0-9]+)?)")
#: Programs print the largest float for the best loss before the first one.
_TOO_LARGE = 1e300
#: At most 18 digits, which fit 64 bits.
_COUNT = re.compile(r"\+?[0-9]{1,18}")
#: Seconds since 1970 of the year 2200. Larger numbers are milliseconds or garbage.
_LAST_SECOND = 7_258_118_400


def number(text: str) -> float | None:
    """Return the number, NaN for "nan" and "inf", or None if there is none or it is out of range.

    A loss that became NaN is a fact to keep; 1e999 is garbage.
    """
    # float() also accepts 1_000, blanks and digits of other scripts.
    if text and not text.strip(CHARACTERS):
        try:
            value = float(text)
        except ValueError:
            return None
        return value if abs(value) < _TOO_LARGE else None
    return math.nan if _NOT_FINITE.fullmatch(text) else None


def parse(text: str, number_format: str | None) -> float | None:
    """Return the number in a text; the format is "thousands", "clock" or None."""
    if number_format == "thousands" and _THOUSANDS.fullmatch(text):
        return number(text.replace(",", ""))
    if number_format == "clock":
        clock = _CLOCK.fullmatch(text)
        if clock is None:
            return None
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return number(text)


def count(text: str) -> int | None:
    return int(text) if _COUNT.fullmatch(text) else None


def whole(value: float) -> int | None:
    """Return a count, or None if the value is not one: negative, fractional or inexact."""
    is_count = math.isfinite(value) and value >= 0 and value == int(value) and value < 2**53
    return int(value) if is_count else None


def time(seconds: float) -> datetime.datetime | None:
    """Return the time of these seconds since 1970; None if it is not plausible."""
    is_plausible = 0 < seconds < _LAST_SECOND
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC) if is_plausible else None
