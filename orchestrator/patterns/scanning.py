"""Large blocks of a log -> the places worth a look, before anything is cut into lines.

Of a gigabyte most lines are of no kind that a pattern knows. What has to stand in each kind's lines
is looked for in all of a block at once, in bytes.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from orchestrator.patterns import needles, records

#: In a line with colours a text may be cut by escape sequences, so any kind's lines may be there.
ESCAPE = b"\x1b"
#: The mark of a line that any kind may fit.
ANY = -1


#: The byte behind what was found; the number of the kind of line, over all patterns, or ANY.
Place: TypeAlias = tuple[int, int]


class Scanner:
    """Finds the lines of patterns in blocks, and misses none of theirs.

    Hyperscan does the work (on other processors than x86 that is Vectorscan).
    """

    def __init__(self, patterns: Sequence[records.Pattern], *, also: Sequence[str] = ()) -> None:
        """`also`: texts whose lines are worth a look as well."""
        self._patterns = tuple(patterns)
        self._also = [ESCAPE, *(text.encode() for text in also)]
        # What one of their lines says may hold for others of the pattern.
        self._following = {
            number: pattern.name
            for number, pattern, _ in numbered(self._patterns)
            if pattern.follows
        }
        self._databases: dict[tuple[bool, frozenset[str]], Callable[[bytes], list[Place]]] = {}

    @functools.cached_property
    def usable(self) -> bool:
        """Whether all kinds of line can be found so; where not, each line is to be looked at."""
        if not all(self._needles) or _hyperscan() is None:
            return False
        try:
            self._databases[True, frozenset()] = self._made(True, frozenset())
        except _hyperscan().error:
            # An old processor (HS_ARCH_ERROR: x86 without SSSE3), or too much of an expression.
            return False
        return True

    @functools.cached_property
    def _needles(self) -> list[list[needles.Needle]]:
        return [needles.needles(kind) for _, _, kind in numbered(self._patterns)]

    def search(
        self, *, generic: bool = True, followed: Collection[str] = ()
    ) -> Callable[[bytes], list[Place]]:
        """Return what finds places in the blocks of one file, one after the other.

        `generic`: whether generic patterns count; `followed`: patterns of which lines were seen, as
        far as one of their lines may say something about another.
        """
        known = frozenset(followed)

        def find(data: bytes) -> list[Place]:
            nonlocal known
            while True:
                key = (generic, known)
                if key not in self._databases:
                    self._databases[key] = self._made(*key)
                found = self._databases[key](data)
                new = {self._following[mark] for _, mark in found if mark in self._following}
                if new <= known:
                    return found
                known |= new

        return find

    def _made(self, generic: bool, followed: frozenset[str]) -> Callable[[bytes], list[Place]]:
        expressions: list[tuple[bytes, int]] = [
            (needles.Needle(text.decode()).expression, ANY) for text in self._also
        ]
        for number, pattern, kind in numbered(self._patterns):
            if pattern.generic and not generic:
                continue
            wanted = self._needles[number]
            if kind.after and pattern.name not in followed:
                continue
            if kind.keep and pattern.name in followed:
                # What has the text and does not fit is torn, and takes back what was kept.
                wanted = [needles.Needle(text) for text in kind.contains] or wanted
            expressions += [(needle.expression, number) for needle in wanted]
        return _searcher(expressions)


def numbered(
    patterns: Sequence[records.Pattern],
) -> list[tuple[int, records.Pattern, records.LineKind]]:
    """Return all kinds of line with their numbers."""
    kinds = [(pattern, kind) for pattern in patterns for kind in pattern.lines]
    return [(number, pattern, kind) for number, (pattern, kind) in enumerate(kinds)]


def _hyperscan() -> Any:
    try:
        return importlib.import_module("hyperscan")
    except (ImportError, OSError):
        # Absent, or a library of it does not load here.
        return None


def _searcher(expressions: Sequence[tuple[bytes, int]]) -> Callable[[bytes], list[Place]]:
    database = _hyperscan().Database()
    database.compile(
        expressions=[expression for expression, _ in expressions],
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=[0] * len(expressions),
    )
    marks = [mark for _, mark in expressions]

    def search(data: bytes) -> list[Place]:
        found: list[Place] = []

        def add(number: int, start: int, end: int, flags: int, context: object) -> None:
            found.append((end, marks[number]))

        database.scan(data, match_event_handler=add)
        found.sort()
        return found

    return search
