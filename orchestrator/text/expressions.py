"""Regular expressions of users, matched in bounded time and memory.

Python's re has no time limit and can take hours for a line of 40 characters. RE2 takes time linear
in the line, and matches every expression that it accepts. The others, with lookaround,
back-references or possessive repeats, are matched by the package regex under a time limit.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Mapping
from typing import Any, cast

#: Of processor time, for one expression on one line; ordinary ones take some microseconds.
LINE_SECONDS = 0.05
#: Longer expressions are refused: Python's re, which checks the syntax, takes 4 s for the worst.
MAX_CHARACTERS = 4000

#: RE2's limit on the program of an expression. It bounds the time on a line too: an expression of
#: that size takes 0.1 s for 4096 characters.
_PROGRAM_BYTES = 1024 * 1024
#: Valid for Python and for RE2, with another meaning: \12 with 12 groups, and {,5}.
_DIFFERS = re.compile(r"\\[1-9]|\{,[0-9]*\}")
#: The package regex copies what is repeated, as often as it has to be there: ((a{9}){9}){9} has 729
#: parts, and 30 nested groups with a plus exhaust memory. So many parts take it 0.1 s.
_MAX_PARTS = 20_000
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<repeat>[*?+]|\{(?P<least>[0-9]*)(?:,[0-9]*)?\})|.",
    re.DOTALL,
)


class ExpressionError(ValueError):
    """No regular expression, or one that is not supported."""


class TooSlowError(Exception):
    """An expression took more than LINE_SECONDS on a line."""

    def __init__(self, characters: int) -> None:
        super().__init__(f"more than {LINE_SECONDS:g} s on a line of {characters} characters")


class Match:
    """What RE2 found, as re.Match tells it; groups are known by their names."""

    def __init__(self, found: Any, raw: bytes, groups: Mapping[str, int]) -> None:
        self._found, self._raw, self._groups = found, raw, groups

    @property
    def lastgroup(self) -> str | None:
        """Return the name of a group that took part in the match; none: no named one did."""
        return next((name for name, text in self.groupdict().items() if text is not None), None)

    def groupdict(self) -> dict[str, Any]:
        return {name: self._text(number) for name, number in self._groups.items()}

    def span(self, name: str) -> tuple[int, int]:
        begin, end = self._found.span(self._groups[name])
        if begin < 0 or self._raw.isascii():
            return begin, end
        return len(_decoded(self._raw[:begin])), len(_decoded(self._raw[:end]))

    def start(self, name: str) -> int:
        return self.span(name)[0]

    def _text(self, number: int) -> str | None:
        begin, end = self._found.span(number)
        return None if begin < 0 else _decoded(self._raw[begin:end])


class Expression:
    """A compiled expression of a user."""

    def __init__(self, source: str) -> None:
        r"""Compile it; \d, \w, \s and \b are ASCII. Raises ExpressionError."""
        self.groupindex = checked(source).groupindex
        self.groups = len(self.groupindex)
        self._linear = _linear(_encoded(source), max_mem=_PROGRAM_BYTES)
        self._limited = None if self._linear is not None else _limited(source)

    def fullmatch(self, text: str) -> re.Match[str] | Match | None:
        """Return the match of the whole text. Raises TooSlowError."""
        return next(iter(self._found("fullmatch", text)), None)

    def search(self, text: str) -> re.Match[str] | Match | None:
        """Return the first match in the text. Raises TooSlowError."""
        return next(iter(self._found("search", text)), None)

    def finditer(self, text: str) -> list[re.Match[str] | Match]:
        """Return all matches in the text. Raises TooSlowError."""
        return self._found("finditer", text)

    def _found(self, method: str, text: str) -> list[Any]:
        if self._linear is None:
            try:
                return _listed(getattr(self._limited, method)(text, timeout=LINE_SECONDS))
            except (TimeoutError, MemoryError) as error:
                raise TooSlowError(len(text)) from error
        # RE2 reads bytes: its wrapper takes three times as long for text.
        raw = _encoded(text)
        # The time of this thread: a busy machine makes no expression slow.
        begun = time.thread_time()
        found = _listed(getattr(self._linear, method)(raw))
        if time.thread_time() - begun > LINE_SECONDS:
            raise TooSlowError(len(text))
        return [Match(one, raw, self.groupindex) for one in found]


def checked(source: str) -> re.Pattern[str]:
    """Return what Python's re, whose language is the documented one, makes of it."""
    if len(source) > MAX_CHARACTERS:
        raise ExpressionError(f"longer than {MAX_CHARACTERS} characters")
    try:
        return re.compile(source, re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        # Not its position: in a pattern that counts with the shorthands written out.
        told = getattr(error, "msg", str(error))
        raise ExpressionError(f"not a regular expression: {told}") from error


def linear_bytes(source: bytes, *, ignore_case: bool) -> re.Pattern[bytes] | None:
    """Return RE2's expression for bytes, with `^` and `$` at line ends; none where it has none."""
    found = _linear(b"(?m)" + source, encoding="LATIN1", case_sensitive=not ignore_case)
    return cast("re.Pattern[bytes] | None", found)


def _linear(source: bytes, *, encoding: str = "UTF8", **options: Any) -> Any:
    """Return RE2's expression; none where it does not accept it, or is not installed."""
    try:
        re2: Any = importlib.import_module("re2")
    except (ImportError, OSError):
        return None
    if _DIFFERS.search(source.decode("latin-1")):
        return None
    chosen = re2.Options()
    chosen.log_errors = False
    chosen.encoding = getattr(re2.Options.Encoding, encoding)
    for name, value in options.items():
        setattr(chosen, name, value)
    try:
        return re2.compile(source, chosen)
    except re2.error:
        return None


def _limited(source: str) -> Any:
    """Return the expression of the package regex, whose calls take a time limit."""
    if _parts(source) > _MAX_PARTS:
        raise ExpressionError(
            "too large for an expression with lookaround, back-references or possessive repeats: "
            "use fewer repeats within repeats, or leave these out"
        )
    regex: Any = importlib.import_module("regex")
    try:
        return regex.compile(source, regex.ASCII | regex.VERSION0)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ExpressionError(f"not supported: {error}") from error


def _parts(source: str) -> int:
    """Return of how many parts an expression is made when its repeats are written out."""
    sums, last = [0], 0
    for found in _PART.finditer(source):
        if found[0] == "(":
            sums.append(0)
            continue
        if found["repeat"]:
            least = 1 if found[0] == "+" else int(found["least"] or 0)
            added, last = last * least, last * (least + 1)
        elif found[0] == ")" and len(sums) > 1:
            added = last = sums.pop() + 1
        else:
            added = last = 1
        sums[-1] += added
    return sum(sums)


def _listed(found: Any) -> list[Any]:
    """Return what a method of either package found."""
    if found is None:
        return []
    return [found] if hasattr(found, "span") else list(found)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="surrogatepass")
