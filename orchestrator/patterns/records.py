"""Log patterns: which lines a program prints, and which metrics they contain."""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Mapping

from orchestrator.text import expressions

#: Integers that say what the metrics of this and later lines belong to.
CONTEXT = ("epoch", "step", "rank", "world_size")
#: A word: whether the line is of training or of validation.
PHASE = "phase"
#: When the program printed the line: seconds since 1970, or milliseconds if the unit is ms.
TIME = "time"
#: Names that are attributes of metrics, and never metrics.
NOT_METRICS = ("rank", "world_size", PHASE, TIME)
#: The group `GROUP_unit` contains the unit of `GROUP`.
UNIT_SUFFIX = "_unit"
#: The group that a `form` parses.
FIELDS = "fields"


class Keep(enum.StrEnum):
    """How long a value holds for later lines."""

    #: each later line kind takes it once
    ONCE = "once"
    #: until it changes or the next attempt begins
    ALWAYS = "always"


class Form(enum.StrEnum):
    """The format of a line whose names differ from line to line."""

    #: {"loss": 0.5, "data": {"lr": 0.1}}
    JSON = "json"
    #: {'loss': 0.5}, as Python prints a dict
    DICT = "dict"
    #: loss: 0.5 | lr: 0.1, with any separator
    PAIRS = "pairs"


class NumberFormat(enum.StrEnum):
    """A format that float() does not accept."""

    #: 12,345.6
    THOUSANDS = "thousands"
    #: 1:02:03.4, converted to seconds
    CLOCK = "clock"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Value:
    """What a group or field is stored as."""

    #: of the metric, or one of NOT_METRICS; "": ignored
    name: str
    unit: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineKind:
    """One kind of line that a program prints. patterns.toml explains the fields."""

    name: str
    #: each line contains one of these texts; (): not specified
    contains: tuple[str, ...] = ()
    #: the same, derived from the regex if not specified; (): unknown
    required: tuple[str, ...] = ()
    #: regex of the whole line without its prefix and trailing blanks
    source: str
    #: named groups that are metrics
    metrics: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    number_formats: Mapping[str, NumberFormat] = dataclasses.field(default_factory=dict)
    #: named groups whose values hold for later lines
    keep: Mapping[str, Keep] = dataclasses.field(default_factory=dict)
    #: kept values that this line takes
    takes: tuple[str, ...] = ()
    #: the pattern's previous line must be of one of these kinds; (): any
    after: tuple[str, ...] = ()
    #: format of the group `fields`; None: there is no such group
    form: Form | None = None
    #: for Form.PAIRS; "": blanks, commas and the like, and names must be normalized ones
    separator: str = ""
    between: str = ":"
    #: the program's names -> ours
    fields: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    #: the two keys that contain a name and its number; (): each key is a name
    pair: tuple[str, ...] = ()
    #: fields that `fields` does not list are metrics too
    others: bool = True
    #: the line must contain one metric of each list
    needs: tuple[tuple[str, ...], ...] = ()
    #: included in this package: tested, and matched by Python's re
    shipped: bool = False

    @functools.cached_property
    def regex(self) -> re.Pattern[str] | expressions.Expression:
        # Compiled on first use: the included patterns take 50 ms, and few are used in one log.
        if self.shipped:
            return re.compile(self.source, re.ASCII)
        return expressions.Expression(self.source)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pattern:
    """The lines of one program or family of programs."""

    #: used in specs
    name: str
    description: str = ""
    #: in the order in which they are printed; the first that matches counts
    lines: tuple[LineKind, ...]
    #: counts only in logs in which no other pattern has found anything so far
    generic: bool = False
    #: file that defines it; "": included in this package
    origin: str = ""

    @property
    def source(self) -> str:
        """The `source` of its metrics."""
        return f"log:{self.name}"

    @functools.cached_property
    def has_context(self) -> bool:
        """Whether its lines depend on each other."""
        return any(kind.keep or kind.takes or kind.after for kind in self.lines)
