"""What a pattern is."""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Mapping

from orchestrator.text import expressions

#: What a line may tell about the numbers of lines that follow; all are whole numbers.
CONTEXT = ("epoch", "step", "rank", "world_size")
#: Tells whether the line is of training or of validation; a word and no number.
PHASE = "phase"
#: When the program wrote the line; seconds since 1970 unless the unit is ms.
TIME = "time"
#: What of a line is told with its metrics and is no metric itself.
SURROUNDINGS = ("rank", "world_size", PHASE, TIME)
#: `GROUP_unit` holds the unit of `GROUP` as the line has it.
UNIT_SUFFIX = "_unit"
#: The group that holds what a `form` reads.
FIELDS = "fields"


class Keep(enum.StrEnum):
    """How long a value holds for lines that follow."""

    #: each kind of line takes it once, in the pattern's order
    ONCE = "once"
    #: until it changes or the next attempt begins
    ALWAYS = "always"


class Form(enum.StrEnum):
    """How names and numbers stand in a line, where each line may have others."""

    #: {"loss": 0.5, "data": {"lr": 0.1}}
    JSON = "json"
    #: {'loss': 0.5}, as Python prints a dict
    DICT = "dict"
    #: loss: 0.5 | lr: 0.1, with the separator and the sign between that the pattern names
    PAIRS = "pairs"


class Kind(enum.StrEnum):
    """How a number is written, where it differs from what everybody reads as one."""

    #: 12,345.6
    THOUSANDS = "thousands"
    #: 1:02:03.4, taken as seconds
    CLOCK = "clock"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Value:
    """What a group or a key of a line is."""

    #: the metric's; one of SURROUNDINGS; "": nothing, it is left out
    name: str
    #: as the log means it
    unit: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineKind:
    """One kind of line that a program prints."""

    name: str
    #: texts of which one stands in each line of this kind; (): not known
    contains: tuple[str, ...] = ()
    #: fits the whole line, less its prefix and the blanks at its end
    source: str
    #: named groups that are metrics
    metrics: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    #: groups that are written in a way of their own
    kinds: Mapping[str, Kind] = dataclasses.field(default_factory=dict)
    #: named groups that hold for lines that follow
    keep: Mapping[str, Keep] = dataclasses.field(default_factory=dict)
    #: what this line takes of that
    takes: tuple[str, ...] = ()
    #: kinds of which one must be the pattern's last line before; (): no matter
    after: tuple[str, ...] = ()
    #: how the group `fields` is read; none: there is no such group
    form: Form | None = None
    #: of Form.PAIRS; "": blanks, commas and the like, and the names must be normalised ones
    separator: str = ""
    between: str = ":"
    #: the program's names, as they stand there
    fields: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    #: keys that hold a name and its number; (): each key is a name itself
    pair: tuple[str, ...] = ()
    #: numbers under names that `fields` lacks are metrics as well
    others: bool = True
    #: of each of these lists the line must tell one
    needs: tuple[tuple[str, ...], ...] = ()
    #: it is ours: its source is tested, and matched by Python's re
    shipped: bool = False

    @functools.cached_property
    def regex(self) -> re.Pattern[str] | expressions.Expression:
        """Return the compiled source: a hundred of them take 0.05 s, and few are ever used."""
        if self.shipped:
            return re.compile(self.source, re.ASCII)
        return expressions.Expression(self.source)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pattern:
    """The lines of one program or family of programs."""

    #: as specs name it
    name: str
    description: str = ""
    #: in the order they are printed; of those that fit a line the first is taken
    lines: tuple[LineKind, ...]
    #: counts only in logs in which no other pattern has found anything so far
    generic: bool = False
    #: the file it is from; "": it ships
    origin: str = ""

    @property
    def source(self) -> str:
        """Return what a metric's `source` says."""
        return f"log:{self.name}"

    @functools.cached_property
    def follows(self) -> bool:
        """Tell whether a line of it may say something about another."""
        return any(kind.keep or kind.takes or kind.after for kind in self.lines)
