"""Which checkpoints of an ended job may be removed: all but the newest and the best."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

_AFTER_WORD = r"[-_=]?(?P<step>[0-9]{1,18})(?![0-9a-z])"
#: How a step is written, the most exact first: "epoch=3-step=120.ckpt" is of step 120.
_STEPS = {
    word: re.compile(f"(?<![a-z]){before}{word}{_AFTER_WORD}")
    for word, before in {
        **{"step": "(?:global[-_]?)?", "iteration": "", "iter": ""},
        **{"checkpoint": "", "ckpt": "", "epoch": ""},
    }.items()
}
#: "120", "120.pt"; other numbers may be ranks, layers or parts of one checkpoint.
_NUMBER = re.compile(r"(?P<step>[0-9]{1,18})(?:\.(?:pt|pth|ckpt|bin|safetensors|tar))?")
#: Checkpoints whose writing was interrupted, and those that a trainer could not read.
_UNUSABLE = re.compile(r"\.(?:draft|tmp|part|damaged)\b")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A file or folder in a folder of checkpoints."""

    name: str
    #: seconds since 1970
    modified_at: float = 0.0
    is_link: bool = False
    #: a symbolic link beside it leads to it, as `last` does
    is_linked: bool = False


def removable(entries: Sequence[Entry]) -> list[str]:
    """Return the names of the checkpoints that may go, in the given order.

    Those of the highest step stay, by each way of numbering; so do the one that was written last,
    those whose name contains "best", and those to which a symbolic link leads. Whatever is not
    recognized as a checkpoint stays too.
    """
    steps = {entry.name: numbered for entry in entries if (numbered := _step(entry.name))}
    highest: dict[str, int] = {}
    for word, step in steps.values():
        highest[word] = max(step, highest.get(word, step))
    newest = max(
        (entry for entry in entries if entry.name in steps),
        key=lambda entry: (entry.modified_at, steps[entry.name][1]),
        default=None,
    )
    return [
        entry.name
        for entry in entries
        if _UNUSABLE.search(entry.name)
        or (
            entry.name in steps
            and not (entry.is_link or entry.is_linked or entry is newest)
            and "best" not in entry.name.lower()
            and steps[entry.name][1] < highest[steps[entry.name][0]]
        )
    ]


def _step(name: str) -> tuple[str, int] | None:
    """Return how a checkpoint is numbered, and its step; None for another name."""
    if _UNUSABLE.search(name):
        return None
    lower = name.lower()
    for word, expression in _STEPS.items():
        if match := expression.search(lower):
            return word, int(match["step"])
    match = _NUMBER.fullmatch(lower)
    return ("number", int(match["step"])) if match else None
