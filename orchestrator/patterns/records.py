"""Log patterns: which lines a program prints, and which metrics they contain."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, Literal

from orchestrator.patterns import regexes
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Value:
    """What a group or field is stored as."""

    #: of the metric, or one of NOT_METRICS; "": ignored
    name: str
    unit: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineTable:
    """`[[pattern.NAME.line]]`: a kind of line that the program prints. The first that matches
    counts.

    The comment at the top of patterns.toml describes the keys.
    """

    name: str = ""
    contains: str | tuple[str, ...] = ()
    regex: str = ""
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    keep: Mapping[str, Literal["once", "always"]] = dataclasses.field(default_factory=dict)
    takes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    form: Literal["json", "dict", "pairs", "general"] | None = None
    separator: str = ""
    between: str = ":"
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pair: tuple[str, ...] = ()
    others: bool = True
    needs: tuple[tuple[str, ...], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineKind(LineTable):
    """One kind of line that a program prints."""

    #: included in this package: tested, and matched by Python's re
    shipped: bool = False

    @functools.cached_property
    def texts(self) -> tuple[str, ...]:
        """Each line contains one of these; (): not specified."""
        if isinstance(self.contains, str):
            return (self.contains,) if self.contains else ()
        return tuple(self.contains)

    @functools.cached_property
    def required(self) -> tuple[str, ...]:
        """The same, derived from the regex if not specified; (): unknown."""
        texts = self.texts or (regexes.required_text(self.source),)
        return texts if all(texts) else ()

    @functools.cached_property
    def source(self) -> str:
        """The regex of the whole line without its prefix and trailing blanks."""
        default = "(?P<fields>.*)" if self.form in ("pairs", "general") else r"(?P<fields>\{.*\})"
        return regexes.expanded(self.regex or default, shipped=self.shipped)

    @functools.cached_property
    def compiled(self) -> re.Pattern[str] | expressions.Expression:
        # On first use: the included patterns take 50 ms, and few are used in one log.
        if self.shipped:
            return re.compile(self.source, re.ASCII)
        return expressions.Expression(self.source)

    @functools.cached_property
    def groups(self) -> Mapping[str, Value]:
        """The named groups that are metrics."""
        return {group: _value(group, value, "unit") for group, value in self.metrics.items()}

    @functools.cached_property
    def renamed(self) -> Mapping[str, Value]:
        """The fields that are not stored under the program's name."""
        return {key: _value(key, value, "name") for key, value in self.fields.items()}

    @functools.cached_property
    def number_formats(self) -> Mapping[str, str]:
        """The groups whose numbers float() does not accept: "thousands" or "clock"."""
        return dict(regexes.WITH_FORMAT.findall(self.regex))


def _value(key: str, value: Any, meaning_of_text: str) -> Value:
    keys = value if isinstance(value, Mapping) else {meaning_of_text: value}
    return Value(**{"name": key, **keys})


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
    #: generic patterns do not count in its logs
    complete: bool = False
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
