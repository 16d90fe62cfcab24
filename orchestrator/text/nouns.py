"""Numbers with a noun."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return `1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
