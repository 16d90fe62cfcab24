"""Parses numbers as programs print them."""

from __future__ import annotations

import math
import re

from orchestrator.patterns import records

METRIC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,63}")
UNIT_CHARACTERS = 32

_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_CLOCK = re.compile(r"(?:(?:([0-9]+) days?, )?([0-9]+):)?([0-9]{1,2}):([0-9]{2}(?:\.[0-9]+)?)")
#: At most 18 digits, which fit 64 bits.
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")


def number(text: str) -> float | None:
    """Return the number, NaN for "nan" and "inf", or None if there is none or it is out of range.

    A loss that became NaN is a fact to keep; 1e999 is garbage.
    """
    # float() also accepts 1_000, blanks and digits of other scripts.
    if text and not text.strip("0123456789.+-eE"):
        try:
            value = float(text)
        except ValueError:
            return None
        return value if math.isfinite(value) else None
    return math.nan if _NOT_FINITE.fullmatch(text) else None


def parse(text: str, number_format: records.NumberFormat | None) -> float | None:
    """Return the number in a text of this format."""
    if number_format is records.NumberFormat.THOUSANDS and _THOUSANDS.fullmatch(text):
        return number(text.replace(",", ""))
    if number_format is records.NumberFormat.CLOCK:
        clock = _CLOCK.fullmatch(text)
        if clock is None:
            return None
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return number(text)


def integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None


def whole(value: float) -> int | None:
    """Return a count, or None if the value is not one: negative, fractional or inexact."""
    is_count = math.isfinite(value) and value >= 0 and value == int(value) and value < 2**53
    return int(value) if is_count else None
