"""Numbers of the command line and their bounds: what is none, or beyond, is said in words."""

import argparse
import math
from collections.abc import Callable


def whole(minimum: int, *, why: str = "") -> Callable[[str], int]:
    """Return a parser of whole numbers from `minimum` on; `why` explains the bound."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{text} is below {minimum}{why}")
        return number

    return parse


def real(fits: Callable[[float], bool], what: str) -> Callable[[str], float]:
    """Return a parser of finite numbers that fit; `what` they are ends `1.5 is not ...`."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
        if not (math.isfinite(number) and fits(number)):
            raise argparse.ArgumentTypeError(f"{text} is not {what}")
        return number

    return parse


natural = whole(0)
positive = whole(1)
natural_real = real(lambda number: number >= 0, "0 or above")
positive_real = real(lambda number: number > 0, "above 0")
share = real(lambda number: 0 <= number <= 1, "between 0 and 1")
