"""How complex a TOML text may be: far beyond what a person writes, and read in seconds.

tomllib's time grows with the square of a dotted key's parts (60 KB of them take 15 s and 4 GB),
nesting ends it with RecursionError, and int() refuses more than 4,300 digits.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from orchestrator.toml import key_paths

#: Tables and arrays within each other.
MAX_DEPTH = key_paths.MAX_KEY_PARTS
#: Keys, tables and elements of arrays, all together.
MAX_VALUES = 100_000
MAX_KEY_CHARACTERS = 1024
_SMALLEST_INTEGER, _LARGEST_INTEGER = -(2**63), 2**63 - 1

_KEY_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*+')"""
# Everything that is no key is stepped over: strings, comments, other characters. A string that is
# not closed ends with the text, for tomllib too.
_TOKEN = re.compile(
    rf"""(?P<long>{_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{MAX_DEPTH}}})"""
    r'''|"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\Z)'''
    r"""|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"""
    rf"""|{_KEY_PART}|\#[^\n]*+|[^A-Za-z0-9_"'\#-]++|.""",
    re.DOTALL,
)
_LONG_INTEGER = re.compile(r"[0-9_]{4000,}")


class TooComplexError(ValueError):
    """The text is beyond one of the limits."""

    def __init__(self, message: str, *, path: key_paths.KeyPath = (), line: int | None = None):
        super().__init__(message)
        self.path = path
        self.line = line


def loads(text: str) -> dict[str, Any]:
    """Return the keys of a TOML text; raises TOMLDecodeError, and TooComplexError beyond a limit.

    The error has the path where it is known and the text was read, else the line.
    """
    for found in _TOKEN.finditer(text):
        if found["long"]:
            message = f"a dotted key has more than {MAX_DEPTH} parts"
            raise TooComplexError(message, line=_line(text, found.start()))
    try:
        data = tomllib.loads(text)
    except RecursionError as error:
        raise TooComplexError(_nested()) from error
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        # sys.get_int_max_str_digits()
        digits = _LONG_INTEGER.search(text)
        line = None if digits is None else _line(text, digits.start())
        raise TooComplexError(_no_integer(), line=line) from error
    check(data)
    return data


def check(data: Mapping[str, Any]) -> None:
    """Raise TooComplexError where the values are beyond a limit."""
    pending: list[tuple[key_paths.KeyPath, Any]] = [((), data)]
    count = 0
    while pending:
        path, value = pending.pop()
        if isinstance(value, Mapping):
            for key in value:
                if len(key) > MAX_KEY_CHARACTERS:
                    message = f"a key is longer than {MAX_KEY_CHARACTERS} characters"
                    raise TooComplexError(message, path=path)
            inner: list[tuple[str | int, Any]] = list(value.items())
        elif isinstance(value, list | tuple):
            inner = list(enumerate(value))
        elif type(value) is int and not _SMALLEST_INTEGER <= value <= _LARGEST_INTEGER:
            raise TooComplexError(_no_integer(), path=path)
        else:
            continue
        count += len(inner)
        if count > MAX_VALUES:
            raise TooComplexError(f"more than {MAX_VALUES} keys and values")
        if inner and len(path) >= MAX_DEPTH:
            raise TooComplexError(_nested(), path=path[:3])
        pending.extend(((*path, key), item) for key, item in inner)


def _nested() -> str:
    return f"nested too deeply: at most {MAX_DEPTH} tables and arrays within each other"


def _no_integer() -> str:
    return "an integer must lie between -2^63 and 2^63 - 1"


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
