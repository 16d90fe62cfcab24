"""Regular expressions of users, matched in bounded time and memory.

Python's re has no time limit and can take hours for a line of 40 characters. RE2 takes time linear
in the line. Expressions that it does not accept, with lookaround, back-references or possessive
repeats, are matched by the package regex under a time limit.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Mapping
from typing import Any, cast

#: CPU time for one expression on one line; usually a few microseconds.
LINE_SECONDS = 0.05
#: Python's re, which checks the syntax, takes up to 4 s for an expression of this length.
MAX_CHARACTERS = 4000

#: RE2's limit for the program of an expression. It also limits the time for a line: an expression
#: of this size takes 0.1 s for 4096 characters.
_MAX_PROGRAM_BYTES = 1024 * 1024
#: Valid in Python and RE2, but with different meanings: \12 with 12 groups, and {,5}.
_DIFFERS = re.compile(r"\\[1-9]|\{,[0-9]*\}")
#: The package regex copies required repeats: ((a{9}){9}){9} has 729 parts, and 30 nested groups
#: with a plus exhaust memory. It compiles this number of parts in 0.1 s.
_MAX_PARTS = 20_000
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<repeat>[*?+]|\{(?P<least>[0-9]*)(?:,[0-9]*)?\})|.",
    re.DOTALL,
)


class ExpressionError(ValueError):
    """The text is no regular expression, or one that is not supported."""


class TooSlowError(Exception):
    """An expression took more than LINE_SECONDS on a line."""

    def __init__(self, characters: int) -> None:
        super().__init__(f"more than {LINE_SECONDS:g} s on a line of {characters} characters")


class Match:
    """A match of RE2 with the interface of re.Match; only named groups."""

    def __init__(self, match: Any, raw: bytes, groups: Mapping[str, int]) -> None:
        self._match, self._raw, self._groups = match, raw, groups

    @property
    def lastgroup(self) -> str | None:
        """The name of a group that took part in the match, if any."""
        return next((name for name, text in self.groupdict().items() if text is not None), None)

    def groupdict(self) -> dict[str, Any]:
        spans = {name: self._match.span(number) for name, number in self._groups.items()}
        return {
            name: None if begin < 0 else _decoded(self._raw[begin:end])
            for name, (begin, end) in spans.items()
        }

    def span(self, name: str) -> tuple[int, int]:
        begin, end = self._match.span(self._groups[name])
        if begin < 0 or self._raw.isascii():
            return begin, end
        return len(_decoded(self._raw[:begin])), len(_decoded(self._raw[:end]))

    def start(self, name: str) -> int:
        return self.span(name)[0]


class Expression:
    """A compiled expression of a user."""

    def __init__(self, source: str) -> None:
        r"""Compile it; \d, \w, \s and \b are ASCII. Raises ExpressionError."""
        self.groupindex = checked(source).groupindex
        self.groups = len(self.groupindex)
        self._linear = _linear(_encoded(source), max_mem=_MAX_PROGRAM_BYTES)
        self._limited = None if self._linear is not None else _limited(source)

    def fullmatch(self, text: str) -> re.Match[str] | Match | None:
        """Return the match of the whole text. Raises TooSlowError."""
        return next(iter(self._matches("fullmatch", text)), None)

    def search(self, text: str) -> re.Match[str] | Match | None:
        """Return the first match in the text. Raises TooSlowError."""
        return next(iter(self._matches("search", text)), None)

    def finditer(self, text: str) -> list[re.Match[str] | Match]:
        """Return all matches in the text. Raises TooSlowError."""
        return self._matches("finditer", text)

    def _matches(self, method: str, text: str) -> list[Any]:
        if self._linear is None:
            try:
                return _as_list(getattr(self._limited, method)(text, timeout=LINE_SECONDS))
            except (TimeoutError, MemoryError) as error:
                raise TooSlowError(len(text)) from error
        # RE2 reads bytes: its wrapper takes three times as long for text.
        raw = _encoded(text)
        # Time of this thread: a busy machine makes no expression slow.
        start = time.thread_time()
        matches = _as_list(getattr(self._linear, method)(raw))
        if time.thread_time() - start > LINE_SECONDS:
            raise TooSlowError(len(text))
        return [Match(match, raw, self.groupindex) for match in matches]


def checked(source: str) -> re.Pattern[str]:
    """Return the expression compiled by Python's re, whose syntax is the documented one.

    Raises ExpressionError.
    """
    if len(source) > MAX_CHARACTERS:
        raise ExpressionError(f"longer than {MAX_CHARACTERS} characters")
    try:
        return re.compile(source, re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        # Without the position: it counts expanded shorthands.
        message = getattr(error, "msg", str(error))
        raise ExpressionError(f"not a regular expression: {message}") from error


def linear_bytes(source: bytes, *, ignore_case: bool) -> re.Pattern[bytes] | None:
    """Return RE2's expression for bytes, with `^` and `$` at line ends; None if not supported."""
    pattern = _linear(b"(?m)" + source, encoding="LATIN1", case_sensitive=not ignore_case)
    return cast("re.Pattern[bytes] | None", pattern)


def _linear(source: bytes, *, encoding: str = "UTF8", **options: Any) -> Any:
    """Return RE2's expression; None if RE2 does not accept it or is not installed."""
    try:
        re2: Any = importlib.import_module("re2")
    except (ImportError, OSError):
        return None
    if _DIFFERS.search(source.decode("latin-1")):
        return None
    re2_options = re2.Options()
    re2_options.log_errors = False
    re2_options.encoding = getattr(re2.Options.Encoding, encoding)
    for name, value in options.items():
        setattr(re2_options, name, value)
    try:
        return re2.compile(source, re2_options)
    except re2.error:
        return None


def _limited(source: str) -> Any:
    """Return the expression of the package regex, whose calls have a time limit."""
    if _expanded_size(source) > _MAX_PARTS:
        raise ExpressionError(
            "too large for an expression with lookaround, back-references or possessive repeats: "
            "use fewer nested repeats, or remove these"
        )
    regex: Any = importlib.import_module("regex")
    try:
        return regex.compile(source, regex.ASCII | regex.VERSION0)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ExpressionError(f"not supported: {error}") from error


def _expanded_size(source: str) -> int:
    """Return the number of parts of an expression with its repeats written out."""
    sums, last = [0], 0
    for part in _PART.finditer(source):
        if part[0] == "(":
            sums.append(0)
            continue
        if part["repeat"]:
            least = 1 if part[0] == "+" else int(part["least"] or 0)
            added, last = last * least, last * (least + 1)
        elif part[0] == ")" and len(sums) > 1:
            added = last = sums.pop() + 1
        else:
            added = last = 1
        sums[-1] += added
    return sum(sums)


def _as_list(result: Any) -> list[Any]:
    """Return a list of what a method of either package returned."""
    if result is None:
        return []
    return [result] if hasattr(result, "span") else list(result)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="surrogatepass")
