"""Finds the lines of a log that may match a pattern, without looking at each line in Python."""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orchestrator.patterns import records

#: In a text of `contains`: a run of digits.
INTEGER = "{integer}"
#: In a text of `contains`: the beginning of a row of numbers.
ROW = "{row}"
#: In a text of `contains`: the end of a rate, which /scratch is not.
RATE = "{rate}"
#: In a text of `contains`: a column of values of the training.
PHASE = "{phase}"
#: In a text of `contains`: a counter with its total in brackets.
TOTAL = "{total}"
#: Between the columns of tables that rich draws.
_BARS = "\u2502|\u2503"
_EXPRESSIONS = {
    TOTAL: r"\[ *[0-9]+/ *[0-9]+[\] ]",
    PHASE: r"\|[ ]*(?:[Tt]rain(?:ing)?|[Vv]al(?:id)?|[Tt]est)[ ]*\||[0-9] (?:train|val) [0-9]",
    RATE: r"/s(?:ec|econds?)?(?:/gpu|/GPU|[^A-Za-z0-9_/\n]|(?m:$))",
    INTEGER: "[0-9]+",
    ROW: rf"(?m:^|[\]0-9]: )(?:[ \t|]|{_BARS})*[0-9][0-9.]*(?:/[0-9]+)?(?:[ \t|,;]|{_BARS})+"
    r"(?:[(\[]?[-+]?[0-9.][0-9.eE+-]*[A-Za-z%]{0,2}[)\]]?(?:[ \t|,;]|(?m:$))|[nN]a[nN])",
}
_SPECIAL = re.compile("|".join(map(re.escape, _EXPRESSIONS)))


def search(
    patterns: Sequence[records.Pattern], *, also: Sequence[str] = ()
) -> Callable[[bytes], list[int]] | None:
    """Return a function: block of a log -> the end of each required text in it, in order.

    It uses Hyperscan (Vectorscan on ARM). None without Hyperscan, or with a pattern without any
    required text: then each line may match.

    Args:
        also: further texts to find.
    """
    kinds = [kind for p in patterns for kind in p.lines]
    texts = {text for kind in kinds for text in kind.required}
    # Invalid UTF-8 is decoded as U+FFFD, which the bytes of the log do not contain.
    if any(not k.required for k in kinds) or any("\ufffd" in text for text in texts):
        return None
    # Escape sequences may cut a text in two: such a line may match any pattern.
    return _search_for(frozenset([*texts, "\x1b", *also]))


# Compiling takes 0.1 s, and most jobs have the same patterns.
@functools.lru_cache(4)
def _search_for(texts: frozenset[str]) -> Callable[[bytes], list[int]] | None:
    try:
        hyperscan: Any = importlib.import_module("hyperscan")
    except (ImportError, OSError):
        # Not installed, or one of its libraries is missing.
        return None
    try:
        database = hyperscan.Database()
        database.compile(expressions=[_hyperscan_expression(text) for text in sorted(texts)])
    except hyperscan.error:
        # An old processor: HS_ARCH_ERROR on x86 without SSSE3.
        return None

    def ends_in(block: bytes) -> list[int]:
        ends: list[int] = []
        database.scan(block, match_event_handler=lambda _, __, end, *___: ends.append(end))
        return sorted(ends)

    return ends_in


def text_finder(texts: Sequence[str]) -> Callable[[str], Iterable[int]]:
    """Return a function: line -> the indexes of the texts in it."""
    try:
        re2: Any = importlib.import_module("re2")
    except (ImportError, OSError):
        expressions = [re.compile(_expression(text, re.escape)) for text in texts]
        return lambda line: [i for i, each in enumerate(expressions) if each.search(line)]
    # One pass for all texts: 2 us instead of 40 for a line of 300 characters and 160 texts.
    texts_set = re2.Set.SearchSet()
    for text in texts:
        texts_set.Add(_expression(text, re2.escape))
    texts_set.Compile()
    return lambda line: texts_set.Match(line.encode(errors="surrogatepass")) or ()


def _hyperscan_expression(text: str) -> bytes:
    def escape(part: str) -> str:
        return "".join(rf"\x{byte:02x}" for byte in part.encode())

    return _expression(text, escape).encode()


def _expression(text: str, escape: Callable[[str], str]) -> str:
    """Return the regex of a text in `contains`."""
    parts = map(escape, _SPECIAL.split(text))
    special = [_EXPRESSIONS[found] for found in _SPECIAL.findall(text)]
    return "".join(
        part + regex for part, regex in itertools.zip_longest(parts, special, fillvalue="")
    )
