"""Parsers of numbers on the command line, with bounds and error messages."""

import argparse
import math
from collections.abc import Callable


def whole(minimum: int, *, why: str = "") -> Callable[[str], int]:
    """Return a parser of integers of at least `minimum`; `why` explains the bound."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{text} is less than {minimum}{why}")
        if number >= 2**63:  # int64
            raise argparse.ArgumentTypeError(f"{text} is too large")
        return number

    return parse


def real(fits: Callable[[float], bool], what: str) -> Callable[[str], float]:
    """Return a parser of finite numbers that satisfy `fits`; `what` completes `1.5 is not ...`."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not (math.isfinite(number) and fits(number)):
            raise argparse.ArgumentTypeError(f"{text} is not {what}")
        return number

    return parse


natural = whole(0)
positive = whole(1)
natural_real = real(lambda number: number >= 0, "0 or greater")
positive_real = real(lambda number: number > 0, "greater than 0")
share = real(lambda number: 0 <= number <= 1, "between 0 and 1")


def naturals(text: str) -> list[int]:
    """Parse `0,1,3`."""
    return [natural(part) for part in text.split(",")]


def positives(text: str) -> tuple[int, ...]:
    """Parse `3,32,32`."""
    return tuple(positive(part) for part in text.split(","))
