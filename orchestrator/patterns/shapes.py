"""Lines that differ in their digits alone: where their numbers stand.

To an expression that treats all digits alike, two lines that differ in nothing but digits are the
same: it fits both or none, and its groups stand at the same places. So what was found in one line
tells where the numbers of all others of its shape are, and only these need be read.
"""

from __future__ import annotations

import importlib
import itertools
import operator
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.patterns import numbers, prefixes, records
from orchestrator.text import expressions

_DIGITS = frozenset("0123456789")
_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_OTHER = str.maketrans("0123456789", "1234567890")
_DIGIT = re.compile(r"[0-9]")
#: So few digits are always a count that fits, and one that float() keeps exactly.
_COUNT = re.compile(r"[0-9]{1,15}")
#: What float() takes as `numbers` does whatever its digits are: it cannot be out of range.
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,2})?|nan)"
)
#: A time with a zone may be one for some digits and none for others.
_ZONE = re.compile(r"[0-9](?: ?(?:Z|UTC)|[-+][0-9]{2}:?[0-9]{2}(?![0-9-]))")


class Span(NamedTuple):
    """Where in a line a number stands."""

    begin: int
    end: int


class Shape(NamedTuple):
    """What the lines of one shape tell."""

    #: as a Reading has them
    source: str
    names: tuple[tuple[str, str], ...]
    #: a line's bytes -> the texts of its numbers
    texts: Callable[[bytes], tuple[bytes, ...]]
    #: these numbers -> the values in the order of the names
    values: Callable[[Sequence[float]], tuple[float, ...]]
    #: places of rank, world_size, step and epoch among them; none: the line tells none
    rank: int | None
    world_size: int | None
    step: int | None
    epoch: int | None
    #: a value has commas
    commas: bool
    #: a count is written as 2.0, or is 2.5 and none
    fractions: bool


def shape(
    text: str,
    source: str,
    names: Sequence[tuple[str, str]],
    values: Mapping[tuple[str, str], Span],
    counts: Mapping[str, Span],
) -> Shape | None:
    """Return the shape of a line whose numbers stand at these places, none within another."""
    wanted = [values[name] for name in names]
    spans = sorted({*wanted, *counts.values()})
    if any(after.begin < before.end for before, after in itertools.pairwise(spans)):
        return None
    form, done = "", 0
    for begin, end in spans:
        form += f"{len(encoded(text[done:begin]))}x{end - begin}s"
        done = end
    form += f"{len(encoded(text[done:]))}x"
    order = [spans.index(span) for span in wanted]
    only = slice(order[0], order[0] + 1)
    places = {key: spans.index(span) for key, span in counts.items()}
    return Shape(
        source=source,
        names=tuple(names),
        texts=struct.Struct(form).unpack,
        # One place alone would give a number and no tuple.
        values=operator.itemgetter(*order) if order[1:] else operator.itemgetter(only),
        rank=places.get("rank"),
        world_size=places.get("world_size"),
        step=places.get("step"),
        epoch=places.get("epoch"),
        commas=any("," in text[begin:end] for begin, end in wanted),
        fractions=not all(is_count(text[begin:end]) for begin, end in counts.values()),
    )


def encoded(text: str) -> bytes:
    """Return the bytes of a line."""
    return text.encode(errors="surrogatepass")


def of(raw: bytes) -> bytes:
    """Return what all lines have in common that differ from this one in digits alone."""
    return raw.translate(_ALIKE)


def is_value(text: str, kind: records.Kind | None) -> bool:
    """Tell whether a text is a number whatever its digits are, and float() reads it as such."""
    if kind is records.Kind.THOUSANDS and "," in text:
        if numbers.of_kind(text, kind) is None:
            return False
        text = text.replace(",", "")
    return kind is not records.Kind.CLOCK and _FLOAT.fullmatch(text) is not None


def is_count(text: str) -> bool:
    """Tell whether a text is a count whatever its digits are."""
    return _COUNT.fullmatch(text) is not None


def has_digit(text: str) -> bool:
    """Tell whether a text is another one where digits differ."""
    return _DIGIT.search(text) is not None


def is_no_value(text: str) -> bool:
    """Tell whether a text is no number whatever its digits are."""
    return bool(text.strip("0123456789.+-eE")) and numbers.number(text) is None


def prefix_rank(text: str, prefix: prefixes.Prefix) -> tuple[bool, Span | None]:
    """Return whether the prefix of all lines of this shape tells alike, and where its rank stands.

    No time counts as alike, and no rank that stands at no known place.
    """
    end = len(text) - len(prefix.rest)
    if prefix.time is not None or not text.endswith(prefix.rest) or _ZONE.search(text, 0, end + 6):
        return False, None
    if prefix.rank is None:
        return True, None
    for found in re.finditer("[0-9]+", text[:end]):
        # With other digits at its place there is another rank: it is read there and nowhere else.
        other = found[0].translate(_OTHER)
        changed = prefixes.split(text[: found.start()] + other + text[found.end() :])
        if int(found[0]) == prefix.rank and changed.rank == int(other):
            return is_count(found[0]), Span(*found.span())
    return False, None


def widened(kind: records.LineKind) -> re.Pattern[str] | expressions.Expression | None:
    """Return an expression that treats all digits alike, and fits whatever the kind's own fits.

    It is the kind's own where that does so already. None where there is no such one, or it would
    be another one of a user's, which Python's re must not match.
    """
    # Python gives the parse tree through a private module, whose forms a unit test holds on to.
    parser: Any = importlib.import_module("re._parser")
    tree = parser.parse(kind.source, re.ASCII)
    if _alike(tree):
        return kind.regex
    if not kind.shipped or not _widen(tree):
        return None
    compiler: Any = importlib.import_module("re._compiler")
    made: re.Pattern[str] = compiler.compile(tree)
    return made


def _widen(tree: Any) -> bool:
    """Put any digit in the place of each one that is named; false where that cannot be done."""
    codes: Any = importlib.import_module("re._constants")
    digits = (codes.RANGE, (ord("0"), ord("9")))
    for place, (operator_, argument) in enumerate(tree):
        name = str(operator_)
        if _is_alike(name, argument):
            continue
        if name == "LITERAL":
            tree[place] = (codes.IN, [digits])
        elif name == "IN" and str(argument[0][0]) != "NEGATE":
            tree[place] = (codes.IN, [*argument, digits])
        elif name == "GROUPREF":
            anything = [(codes.CATEGORY, codes.CATEGORY_SPACE)]
            anything.append((codes.CATEGORY, codes.CATEGORY_NOT_SPACE))
            repeated = type(tree)(tree.state, [(codes.IN, anything)])
            tree[place] = (codes.MAX_REPEAT, (0, codes.MAXREPEAT, repeated))
        elif name == "ASSERT_NOT" or not (inner := _inside(name, argument)):
            return False
        elif not all(_widen(part) for part in inner):
            return False
    return True


def _alike(sequence: Any) -> bool:
    return all(_is_alike(str(name), argument) for name, argument in sequence)


def _is_alike(name: str, argument: Any) -> bool:
    if name in ("ANY", "AT"):
        return True
    if name in ("LITERAL", "NOT_LITERAL"):
        return chr(argument) not in _DIGITS
    if name == "IN":
        return _members_alike(argument)
    inner = _inside(name, argument)
    return bool(inner) and all(_alike(part) for part in inner)


def _inside(name: str, argument: Any) -> Sequence[Any]:
    """Return the parts of an element; none of one that may tell digits apart in other ways."""
    match name:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return [argument[2]]
        case "SUBPATTERN":
            return [argument[3]]
        case "BRANCH":
            return list(argument[1])
        case "ASSERT" | "ASSERT_NOT":
            return [argument[1]]
        case "ATOMIC_GROUP":
            return [argument]
        case _:
            return []


def _members_alike(items: Any) -> bool:
    named: set[str] = set()
    for operator_, argument in items:
        if str(operator_) == "LITERAL":
            named |= {chr(argument)} & _DIGITS
        elif str(operator_) == "RANGE":
            named |= {digit for digit in _DIGITS if argument[0] <= ord(digit) <= argument[1]}
    # Digits beside all digits, as in [0-90], change nothing.
    return named in (set(), _DIGITS)
