"""Numbers as programs print them."""

from __future__ import annotations

import math
import re

from orchestrator.patterns import records

#: A name of a metric, short enough for a table's head.
METRIC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,63}")
UNIT_CHARACTERS = 32

_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_CLOCK = re.compile(r"(?:(?:([0-9]+) days?, )?([0-9]+):)?([0-9]{1,2}):([0-9]{2}(?:\.[0-9]+)?)")
#: Digits that fit 64 bits.
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")


def number(text: str) -> float | None:
    """Return the number that a text shows; None where it shows none, or one no program means.

    "nan" and "inf" give NaN, which says: there was no finite number. A loss that became NaN is a
    fact to keep; one of 1e999 is garbage.
    """
    # float() takes 1_000, blanks around and digits of other scripts, too.
    if text and not text.strip("0123456789.+-eE"):
        try:
            value = float(text)
        except ValueError:
            return None
        return value if math.isfinite(value) else None
    return math.nan if _NOT_FINITE.fullmatch(text) else None


def of_kind(text: str, kind: records.Kind | None) -> float | None:
    """Return the number that a text of this kind shows, or that of plain digits."""
    if kind is records.Kind.THOUSANDS and _THOUSANDS.fullmatch(text):
        return number(text.replace(",", ""))
    if kind is records.Kind.CLOCK:
        found = _CLOCK.fullmatch(text)
        if found is None:
            return None
        days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return number(text)


def integer(text: str) -> int | None:
    """Return the whole number that a text shows, of 18 digits at the most."""
    return int(text) if _INTEGER.fullmatch(text) else None


def whole(value: float) -> int | None:
    """Return a number that counts something: whole, not negative and exact."""
    fits = math.isfinite(value) and value >= 0 and value == int(value) and value < 2**53
    return int(value) if fits else None
