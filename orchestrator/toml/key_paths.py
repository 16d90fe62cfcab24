"""The paths of keys in a TOML text, and the lines of these keys: no TOML library reports lines."""

from __future__ import annotations

import bisect
import re
import tomllib
from typing import TypeAlias

#: The parts of a dotted key; a number is an index in an array.
KeyPath: TypeAlias = tuple[str | int, ...]

MAX_KEY_PARTS = 16

_BLANK = re.compile(r"[ \t]*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BASIC = r'"(?:[^"\\\n]|\\.)*"'
_LITERAL = r"'[^'\n]*'"
_KEY_PART = re.compile(rf"[A-Za-z0-9_-]+|{_BASIC}|{_LITERAL}")
#: Up to two quotes may stand right before the closing three.
_SCALAR = re.compile(
    r'"""(?s:[^"\\]|\\.|"(?!""))*""""{0,2}'
    r"|'''(?:[^']|'(?!''))*''''{0,2}"
    rf"|{_BASIC}|{_LITERAL}|[^,\]}}\n#]+"
)


class NotTomlError(ValueError):
    """The text is not TOML."""


def read_key(text: str, position: int = 0) -> tuple[tuple[str, ...], int]:
    """Return the parts of the dotted key at this position, and the position after it."""
    parts: list[str] = []
    while True:
        position = _end(_BLANK, text, position)
        match = _KEY_PART.match(text, position)
        if match is None:
            raise NotTomlError(f"no key at {text[position : position + 20]!r}")
        parts.append(_unquoted(match[0]))
        position = _end(_BLANK, text, match.end())
        if text[position : position + 1] != ".":
            return tuple(parts), position
        if len(parts) >= MAX_KEY_PARTS:
            raise NotTomlError(f"a dotted key has more than {MAX_KEY_PARTS} parts")
        position += 1


def _unquoted(part: str) -> str:
    if part[0] not in "\"'":
        return part
    try:
        return str(tomllib.loads(f"part = {part}")["part"])
    except tomllib.TOMLDecodeError as error:
        raise NotTomlError(str(error)) from error


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, of each table, key and array element.

    text: accepted by tomllib; for any other text NotTomlError may be raised.
    """
    reader = _Reader(text)
    reader.read()
    return reader.lines


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._position = 0
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        #: index of the last element of each array of tables
        self._last_index: dict[KeyPath, int] = {}

    def read(self) -> None:
        table: KeyPath = ()
        while self._skip_blank_lines():
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _skip_blank_lines(self) -> bool:
        """Skip blanks, comments and line ends; return whether anything is left."""
        self._position = _end(_BLANK_LINES, self._text, self._position)
        return self._position < len(self._text)

    def _take(self, expected: str) -> None:
        if not self._text.startswith(expected, self._position):
            raise NotTomlError(f"no {expected!r} at {self._text[self._position :][:20]!r}")
        self._position += len(expected)

    def _key(self) -> tuple[str, ...]:
        parts, self._position = read_key(self._text, self._position)
        return parts

    def _note(self, path: KeyPath, position: int) -> None:
        self.lines.setdefault(path, bisect.bisect_left(self._newlines, position) + 1)

    def _header(self) -> KeyPath:
        """Read `[KEY]` or `[[KEY]]` and return the path of its table."""
        start = self._position
        is_array = self._text.startswith("[[", start)
        self._take("[[" if is_array else "[")
        parts = self._key()
        self._take("]]" if is_array else "]")
        path: KeyPath = ()
        for part in parts[:-1] if is_array else parts:
            path = (*path, part)
            if path in self._last_index:
                path = (*path, self._last_index[path])
        if is_array:
            path = (*path, parts[-1])
            self._note(path, start)
            self._last_index[path] = self._last_index.get(path, -1) + 1
            path = (*path, self._last_index[path])
        self._note(path, start)
        return path

    def _pair(self, table: KeyPath) -> None:
        start = self._position
        parts = self._key()
        self._take("=")
        for length in range(1, len(parts) + 1):
            self._note((*table, *parts[:length]), start)
        self._position = _end(_BLANK, self._text, self._position)
        self._value((*table, *parts))

    def _value(self, path: KeyPath) -> None:
        opening = self._peek()
        if opening not in ("[", "{"):
            end = _end(_SCALAR, self._text, self._position)
            if end == self._position:
                raise NotTomlError(f"no value at {self._text[self._position :][:20]!r}")
            self._position = end
            return
        closing = "]" if opening == "[" else "}"
        self._take(opening)
        index = 0
        while self._skip_blank_lines() and self._peek() != closing:
            if opening == "[":
                self._note((*path, index), self._position)
                self._value((*path, index))
            else:
                self._pair(path)
            index += 1
            self._skip_blank_lines()
            if self._peek() != closing:
                self._take(",")
        self._take(closing)
