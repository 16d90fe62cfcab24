"""What a pattern is."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping

#: What a line may tell about the numbers of lines that follow; all are whole numbers.
CONTEXT = ("epoch", "step", "rank", "world_size")
#: `GROUP_unit` holds the unit of `GROUP` as the line has it.
UNIT_SUFFIX = "_unit"


class Keep(enum.StrEnum):
    """How long a value holds for lines that follow."""

    #: each kind of line takes it once, in the pattern's order
    ONCE = "once"
    #: until it changes or the next attempt begins
    ALWAYS = "always"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineKind:
    """One kind of line that a program prints."""

    name: str
    #: text that stands in each line of this kind; "": not known
    contains: str = ""
    #: fits the whole line, less the blanks at its end
    regex: re.Pattern[str]
    #: named groups that are metrics, with their units
    metrics: Mapping[str, str]
    #: named groups that hold for lines that follow
    keep: Mapping[str, Keep]
    #: what this line takes of that
    takes: tuple[str, ...] = ()
    #: kinds of which one must be the pattern's last line before; (): no matter
    after: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pattern:
    """The lines of one program or family of programs."""

    #: as specs name it
    name: str
    description: str = ""
    #: in the order they are printed; of those that fit a line the first is taken
    lines: tuple[LineKind, ...]

    @property
    def source(self) -> str:
        """Return what a metric's `source` says."""
        return f"log:{self.name}"
