"""On which line of a TOML text each key stands: no Python TOML library tells."""

from __future__ import annotations

import bisect
import re
import tomllib
from typing import TypeAlias

#: The parts of a key; a number is a place in an array.
KeyPath: TypeAlias = tuple[str | int, ...]

#: Of a dotted key: deeper tables are refused.
MAX_KEY_PARTS = 16

_BLANK = re.compile(r"[ \t]*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL = re.compile(r"'[^'\n]*'")
#: Up to two quotes may stand right before the closing three.
_LONG_BASIC = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""(?:"{0,2})', re.DOTALL)
_LONG_LITERAL = re.compile(r"'''(?:[^']|'(?!''))*'''(?:'{0,2})", re.DOTALL)
_PLAIN = re.compile(r"[^,\]}\n#]+")


class NotTomlError(ValueError):
    """The text is not TOML."""


def read_key(text: str, position: int = 0) -> tuple[tuple[str, ...], int]:
    """Return the parts of the dotted key at this place, and the place behind it."""
    parts: list[str] = []
    while True:
        position = _end(_BLANK, text, position)
        for pattern in (_BARE_KEY, _BASIC, _LITERAL):
            found = pattern.match(text, position)
            if found is not None:
                break
        else:
            raise NotTomlError(f"no key at {text[position : position + 20]!r}")
        part = found.group()
        parts.append(_unquoted(part) if part[0] in "\"'" else part)
        position = _end(_BLANK, text, found.end())
        if text[position : position + 1] != ".":
            return tuple(parts), position
        if len(parts) >= MAX_KEY_PARTS:
            raise NotTomlError(f"a dotted key has more than {MAX_KEY_PARTS} parts")
        position += 1


def _unquoted(part: str) -> str:
    try:
        return str(tomllib.loads(f"part = {part}")["part"])
    except tomllib.TOMLDecodeError as error:
        raise NotTomlError(str(error)) from error


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, of each table, key and array element of a valid TOML text.

    NotTomlError where the text is none.
    """
    reader = _Reader(text)
    reader.document()
    return reader.lines


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return position if found is None else found.end()


class _Reader:
    """Walks over a TOML text that tomllib has taken, so only places are of interest."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._position = 0
        self._newlines = [found.start() for found in re.finditer("\n", text)]
        #: Place of the newest element of each array of tables.
        self._newest: dict[KeyPath, int] = {}

    def document(self) -> None:
        table: KeyPath = ()
        while self._skip():
            if self._text.startswith("[[", self._position):
                table = self._array_header()
            elif self._peek() == "[":
                table = self._table_header()
            else:
                self._pair(table)

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _skip(self) -> bool:
        """Go over blanks, comments and line ends; tell whether anything is left."""
        self._position = _end(_BLANK_LINES, self._text, self._position)
        return self._position < len(self._text)

    def _take(self, wanted: str) -> None:
        if not self._text.startswith(wanted, self._position):
            raise NotTomlError(f"no {wanted!r} at {self._text[self._position :][:20]!r}")
        self._position += len(wanted)

    def _note(self, path: KeyPath, position: int) -> None:
        self.lines.setdefault(path, bisect.bisect_left(self._newlines, position) + 1)

    def _newest_of(self, parts: tuple[str, ...]) -> KeyPath:
        """Return the path of a table's key, within the newest elements of arrays of tables."""
        path: KeyPath = ()
        for part in parts:
            path = (*path, part)
            if path in self._newest:
                path = (*path, self._newest[path])
        return path

    def _array_header(self) -> KeyPath:
        start = self._position
        self._take("[[")
        parts, self._position = read_key(self._text, self._position)
        self._take("]]")
        array = (*self._newest_of(parts[:-1]), parts[-1])
        self._newest[array] = self._newest.get(array, -1) + 1
        self._note(array, start)
        table = (*array, self._newest[array])
        self._note(table, start)
        return table

    def _table_header(self) -> KeyPath:
        start = self._position
        self._take("[")
        parts, self._position = read_key(self._text, self._position)
        self._take("]")
        table = self._newest_of(parts)
        self._note(table, start)
        return table

    def _pair(self, table: KeyPath) -> None:
        start = self._position
        parts, self._position = read_key(self._text, self._position)
        self._take("=")
        for length in range(1, len(parts) + 1):
            self._note((*table, *parts[:length]), start)
        self._value((*table, *parts))

    def _value(self, path: KeyPath) -> None:
        self._position = _end(_BLANK, self._text, self._position)
        opening = self._peek()
        if opening == "[":
            self._array(path)
        elif opening == "{":
            self._inline_table(path)
        else:
            for pattern in (_LONG_BASIC, _LONG_LITERAL, _BASIC, _LITERAL, _PLAIN):
                end = _end(pattern, self._text, self._position)
                if end > self._position:
                    self._position = end
                    return
            raise NotTomlError(f"no value at {self._text[self._position :][:20]!r}")

    def _array(self, path: KeyPath) -> None:
        self._take("[")
        place = 0
        while self._skip() and self._peek() != "]":
            self._note((*path, place), self._position)
            self._value((*path, place))
            place += 1
            self._skip()
            if self._peek() != "]":
                self._take(",")
        self._take("]")

    def _inline_table(self, path: KeyPath) -> None:
        self._take("{")
        while self._skip() and self._peek() != "}":
            self._pair(path)
            self._skip()
            if self._peek() != "}":
                self._take(",")
        self._take("}")
