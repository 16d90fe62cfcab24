"""The phases of a training: which words name training and which validation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

P = TypeVar("P", str, None)
_TRAINING = frozenset("train training trn tr".split())
VALIDATION = frozenset(
    "val vali valid validate validating validation test testing eval evaluating evaluation "
    "dev va evaluated".split()
)
WORDS = _TRAINING | VALIDATION


def in_phase(name: str, phase: str) -> str:
    """Return the name of a metric in this phase: loss is val_loss in "valid"."""
    if phase.lower() not in VALIDATION or name in ("step", "epoch") or name.startswith("val_"):
        return name
    return f"val_{name}"[:64]


def is_training(word: str) -> bool:
    return word.lower() in _TRAINING


def last_phase(words: Iterable[str], phase: P) -> str | P:
    """Return the phase of what follows these words, "val" or ""; the same if they name none."""
    found: str | P = phase
    for word in words:
        lower = word.lower()
        found = "val" if lower in VALIDATION else "" if lower in _TRAINING else found
    return found
