"""Keys of a TOML text and their lines, which no TOML library reports, within limits.

No person reaches the limits. Without them, tomllib takes 15 s and 4 GB for a dotted key of 60 KB,
deep nesting raises RecursionError, and int() refuses more than 4,300 digits.
"""

from __future__ import annotations

import bisect
import re
import tomllib
from typing import Any, TypeAlias

#: The parts of a dotted key; a number is an index in an array.
KeyPath: TypeAlias = tuple[str | int, ...]

_MAX_DEPTH = 16
#: Keys, tables and array elements together.
_MAX_VALUES = 100_000
_MAX_KEY_CHARACTERS = 1024
#: Below sys.get_int_max_str_digits(); also of a number that is followed by something else.
_MAX_DIGITS = 1000

_BLANK = re.compile(r"[ \t]*")
_BLANK_LINES = re.compile(r"(?>(?:[ \t\r\n]++|#[^\n]*+)*)")
_BASIC = r'"(?>(?:[^"\\\n]|\\.)*)"'
_LITERAL = r"'[^'\n]*'"
_KEY_PART = re.compile(rf"[A-Za-z0-9_-]+|{_BASIC}|{_LITERAL}")
#: Up to two quotes may stand right before the closing three.
_SCALAR = re.compile(
    r'"""(?>(?s:[^"\\]|\\.|"(?!""))*)""""{0,2}'
    r"|'''(?>(?:[^']|'(?!''))*)''''{0,2}"
    rf"|{_BASIC}|{_LITERAL}|[^,\]}}\n#]+"
)
_INTEGER = re.compile(r"0x[0-9A-Fa-f_]+|0o[0-7_]+|0b[01_]+|[+-]?[0-9_]+")


class NotTomlError(ValueError):
    """The text is not TOML."""


class TooComplexError(NotTomlError):
    """The text exceeds a limit."""

    def __init__(self, message: str, path: KeyPath = ()) -> None:
        super().__init__(message)
        #: the first parts of the key
        self.path = path[:3]
        self.line = 1


def loads(text: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """Return the keys of a TOML text, and the line of each table, key and array element.

    Raises TOMLDecodeError and TooComplexError.
    """
    reader = _Reader(text)
    try:
        reader.read()
    except TooComplexError:
        raise
    except NotTomlError:
        # The reader accepts all TOML, so tomllib reads no further and has the better message.
        pass
    try:
        return tomllib.loads(text), reader.lines
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        # int() refuses very long numbers, also where the reader stopped before them.
        raise TooComplexError("an integer must lie between -2^63 and 2^63 - 1") from error


def read_key(text: str, position: int = 0) -> tuple[tuple[str, ...], int]:
    """Return the parts of the dotted key at this position, and the position after it.

    Raises NotTomlError.
    """
    parts: list[str] = []
    while True:
        position = _end(_BLANK, text, position)
        match = _KEY_PART.match(text, position)
        if match is None:
            raise NotTomlError(f"no key at {text[position : position + 20]!r}")
        if len(match[0]) > _MAX_KEY_CHARACTERS:
            raise TooComplexError(f"a key is longer than {_MAX_KEY_CHARACTERS} characters")
        parts.append(_unquoted(match[0]))
        position = _end(_BLANK, text, match.end())
        if text[position : position + 1] != ".":
            return tuple(parts), position
        if len(parts) >= _MAX_DEPTH:
            raise TooComplexError(f"a dotted key has more than {_MAX_DEPTH} parts")
        position += 1


def _unquoted(part: str) -> str:
    if part[0] not in "\"'":
        return part
    try:
        return str(tomllib.loads(f"part = {part}")["part"])
    except tomllib.TOMLDecodeError as error:
        raise NotTomlError(str(error)) from error


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()


def _is_too_large(scalar: str) -> bool:
    digits = _INTEGER.match(scalar)
    if digits is None or len(digits[0]) > _MAX_DIGITS:
        return digits is not None
    try:
        return digits[0] == scalar and not -(2**63) <= int(scalar, 0) < 2**63
    except ValueError:  # such as 007
        return False


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
        try:
            while self._skip_blank_lines():
                if self._peek() == "[":
                    table = self._header()
                else:
                    self._pair(table)
        except TooComplexError as error:
            error.line = self._line(self._position)
            raise

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

    def _line(self, position: int) -> int:
        return bisect.bisect_left(self._newlines, position) + 1

    def _add(self, path: KeyPath, position: int) -> None:
        """Add the line of a table, key or element that exists only once."""
        if path in self.lines:
            raise NotTomlError("defined twice")
        if len(self.lines) >= _MAX_VALUES:
            raise TooComplexError(f"more than {_MAX_VALUES} keys and values")
        if len(path) > _MAX_DEPTH:
            message = f"nested too deeply: at most {_MAX_DEPTH} tables and arrays within each other"
            raise TooComplexError(message, path)
        self.lines[path] = self._line(position)

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
            self.lines.setdefault(path, self._line(start))
            self._last_index[path] = self._last_index.get(path, -1) + 1
            path = (*path, self._last_index[path])
        self._add(path, start)
        return path

    def _pair(self, table: KeyPath) -> None:
        start = self._position
        parts = self._key()
        self._take("=")
        for length in range(1, len(parts)):
            self.lines.setdefault((*table, *parts[:length]), self._line(start))
        self._add((*table, *parts), start)
        self._position = _end(_BLANK, self._text, self._position)
        self._value((*table, *parts))

    def _value(self, path: KeyPath) -> None:
        opening = self._peek()
        if opening not in ("[", "{"):
            end = _end(_SCALAR, self._text, self._position)
            if end == self._position:
                raise NotTomlError(f"no value at {self._text[self._position :][:20]!r}")
            if _is_too_large(self._text[self._position : end].strip()):
                raise TooComplexError("an integer must lie between -2^63 and 2^63 - 1", path)
            self._position = end
            return
        closing = "]" if opening == "[" else "}"
        self._take(opening)
        index = 0
        while self._skip_blank_lines() and self._peek() != closing:
            if opening == "[":
                self._add((*path, index), self._position)
                self._value((*path, index))
            else:
                self._pair(path)
            index += 1
            self._skip_blank_lines()
            if self._peek() != closing:
                self._take(",")
        self._take(closing)
