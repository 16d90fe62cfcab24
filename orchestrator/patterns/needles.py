"""What has to stand in each line of a kind, found in its regular expression. Pure.

The text that a pattern names in `contains` may be common in other lines, too ("GPU "). What its
regex asks for around that text ("GPU " and a digit) seldom is.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from orchestrator.patterns import records

#: So long a text is as good as a longer one.
_ENOUGH = 6
#: Elements behind a text that are asked for.
_MOST_ELEMENTS = 8


class Needle(NamedTuple):
    """A text, and what has to follow it."""

    text: str
    #: a regular expression over bytes, in the form that Hyperscan reads
    following: bytes = b""

    @property
    def expression(self) -> bytes:
        """Return the whole of it as a regular expression over bytes."""
        return _escaped(self.text.encode()) + self.following


def needles(kind: records.LineKind) -> list[Needle]:
    """Return needles of which one is in each line that fits this kind; [] where none is known."""
    named = [Needle(text) for text in kind.contains]
    if any("\ufffd" in text or not text for text in kind.contains):
        # An invalid byte is read as U+FFFD, so that one can't be looked for in bytes.
        named = []
    best = max(_runs(kind.source), key=lambda run: len(run.text), default=Needle(""))
    if len(best.text) < min(max((len(text) for text in kind.contains), default=1), _ENOUGH):
        return named
    return [best]


class _First(NamedTuple):
    """What may begin a part of a regular expression."""

    characters: frozenset[str]
    #: the part may fit nothing at all
    empty: bool


_ANYTHING = None
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_DIGITS = frozenset("0123456789")
_BLANKS = frozenset(" \t\n\r\f\v")


def _runs(source: str) -> list[Needle]:
    """Return the fixed texts that are in whatever fits, each with what may follow it."""
    # Python gives the parse tree through a private module, whose forms a unit test holds on to.
    parser: Any = importlib.import_module("re._parser")
    tree = parser.parse(source, re.ASCII)
    if tree.state.flags & re.IGNORECASE:
        return []
    items = list(_inlined(tree))
    runs = []
    text = ""
    for place, (operator, argument) in enumerate([*items, ("END", None)]):
        if str(operator) == "LITERAL":
            text += chr(argument)
            continue
        if text and "\ufffd" not in text:
            runs.append(Needle(text, _following(items[place:])))
        text = ""
    return runs


def _following(items: Sequence[tuple[Any, Any]]) -> bytes:
    """Return an expression for what these elements begin with, as far as that is simple."""
    parts: list[bytes] = []
    for operator, argument in items[:_MOST_ELEMENTS]:
        name = str(operator)
        if name == "LITERAL" and argument < 128:
            parts.append(_escaped(bytes([argument])))
            continue
        if name in _REPEATS and _is_character(argument[2]):
            only = _class(_first(argument[2]))
            if only:
                parts.append(only + (b"+" if argument[0] else b"*"))
                continue
        elif name == "IN":
            only = _class(_first([(operator, argument)]))
            if only:
                parts.append(only)
                continue
        parts.append(_class(_first(items[len(parts) :])))
        break
    # Each further byte that a repeat at the end takes would be told of by itself.
    while parts and (not parts[-1] or parts[-1].endswith(b"*")):
        parts.pop()
    if parts:
        parts[-1] = parts[-1].removesuffix(b"+")
    return b"".join(parts)


def _is_character(sequence: Any) -> bool:
    """Whether whatever fits is one character: what begins a longer one says little of its rest."""
    return len(sequence) == 1 and str(sequence[0][0]) in ("LITERAL", "IN")


def _class(first: _First | None) -> bytes:
    """Return what fits such a byte; b"" where that may be any, or the first of several."""
    if first is _ANYTHING or first.empty:
        return b""
    # No line holds a line end, and no segment of one a carriage return or NUL.
    characters = first.characters - {"\n", "\r", "\0"}
    if not characters or not all(one.isascii() for one in characters):
        return b""
    return b"[" + b"".join(rb"\x%02x" % ord(one) for one in sorted(characters)) + b"]"


def _escaped(text: bytes) -> bytes:
    return b"".join(rb"\x%02x" % byte for byte in text)


def _inlined(sequence: Any) -> list[tuple[Any, Any]]:
    """Return the elements, those of groups in place of the groups."""
    found: list[tuple[Any, Any]] = []
    for operator, argument in sequence:
        if str(operator) == "SUBPATTERN" and not argument[1] and not argument[2]:
            found += _inlined(argument[3])
        else:
            found.append((operator, argument))
    return found


def _first(items: Sequence[tuple[Any, Any]]) -> _First | None:
    """Return what may begin these elements; None where that may be anything."""
    characters: frozenset[str] = frozenset()
    for operator, argument in items:
        first = _first_of(str(operator), argument)
        if first is _ANYTHING:
            return _ANYTHING
        characters |= first.characters
        if not first.empty:
            return _First(characters, False)
    return _First(characters, True)


def _first_of(operator: str, argument: Any) -> _First | None:
    if operator == "LITERAL":
        return _First(frozenset(chr(argument)), False)
    if operator == "IN":
        members = _members(argument)
        return _ANYTHING if members is None else _First(members, False)
    if operator == "SUBPATTERN":
        return _ANYTHING if argument[1] or argument[2] else _first(argument[3])
    if operator == "ATOMIC_GROUP":
        return _first(argument)
    if operator in _REPEATS:
        first = _first(argument[2])
        if first is _ANYTHING or argument[0] > 0:
            return first
        return _First(first.characters, True)
    if operator == "BRANCH":
        parts = [_first(part) for part in argument[1]]
        if any(part is _ANYTHING for part in parts):
            return _ANYTHING
        known = [part for part in parts if part is not None]
        characters = frozenset().union(*(part.characters for part in known))
        return _First(characters, any(part.empty for part in known))
    return _ANYTHING


def _members(items: Any) -> frozenset[str] | None:
    characters: frozenset[str] = frozenset()
    for operator, argument in items:
        name = str(operator)
        if name == "LITERAL":
            characters |= {chr(argument)}
        elif name == "RANGE" and argument[1] - argument[0] < 128:
            characters |= {chr(code) for code in range(argument[0], argument[1] + 1)}
        elif name == "CATEGORY" and str(argument) in ("CATEGORY_DIGIT", "CATEGORY_SPACE"):
            characters |= _DIGITS if str(argument) == "CATEGORY_DIGIT" else _BLANKS
        else:
            return None
    return characters
