"""Drawn values: the same on every machine and with every Python, for a seed, a key and a place.

Python promises only `random.random()` to stay as it is, and C libraries differ in the last digit of
exp: so numbers come from SHA-256, and reals are rounded to six digits.
"""

from __future__ import annotations

import hashlib
import math

from orchestrator import jobs
from orchestrator.sweeps import records

_DIGITS = 6
_BITS = 53


def value(draw: records.Draw, seed: int, key: str, number: int) -> jobs.ArgumentValue:
    """Return the value of an axis in the sample of this number, from 0.

    It depends on nothing else: neither on the other axes nor on how many samples there are.
    """
    share = _share(f"{seed}\n{key}\n{number}")
    if draw.how == "choice":
        return draw.of[int(share * len(draw.of))]
    low, high = (float(one) for one in draw.of if isinstance(one, int | float))
    if draw.how == "integers":
        return int(low) + int(share * (int(high) - int(low) + 1))
    if draw.how == "uniform":
        real = low + share * (high - low)
    else:
        real = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return min(max(float(f"{real:.{_DIGITS}g}"), low), high)


def _share(text: str) -> float:
    """Return a number from 0, below 1."""
    digest = hashlib.sha256(text.encode()).digest()
    return (int.from_bytes(digest[:8]) >> (64 - _BITS)) / (1 << _BITS)
