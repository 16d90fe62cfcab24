"""Limits on the complexity of a TOML text: no person reaches them, and it is parsed in seconds.

tomllib's time grows with the square of a dotted key's parts (60 KB of them take 15 s and 4 GB),
deep nesting raises RecursionError, and int() refuses more than 4,300 digits.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from orchestrator.toml import key_paths

MAX_DEPTH = key_paths.MAX_KEY_PARTS
#: Keys, tables and array elements together.
MAX_VALUES = 100_000
MAX_KEY_CHARACTERS = 1024

_NESTED = f"nested too deeply: at most {MAX_DEPTH} tables and arrays within each other"
_NO_INTEGER = "an integer must lie between -2^63 and 2^63 - 1"
_KEY_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*+')"""
# Skips everything that is no key: strings, comments, other characters. A string that is not closed
# ends with the text, as for tomllib.
_TOKEN = re.compile(
    rf"""(?P<long>{_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{MAX_DEPTH}}})"""
    r'''|"""(?:[^"\\]++|\\.|"(?!""))*+(?:"{3,5}|\Z)'''
    r"""|'''(?:[^']++|'(?!''))*+(?:'{3,5}|\Z)"""
    rf"""|{_KEY_PART}|\#[^\n]*+|[^A-Za-z0-9_"'\#-]++|.""",
    re.DOTALL,
)
_LONG_INTEGER = re.compile(r"[0-9_]{4000,}")


class TooComplexError(ValueError):
    """The text exceeds a limit. It has the path of the key, the line, or neither."""

    def __init__(
        self, message: str, *, path: key_paths.KeyPath = (), line: int | None = None
    ) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


def loads(text: str) -> dict[str, Any]:
    """Return the keys of a TOML text. Raises TOMLDecodeError and TooComplexError."""
    for token in _TOKEN.finditer(text):
        if token["long"]:
            message = f"a dotted key has more than {MAX_DEPTH} parts"
            raise TooComplexError(message, line=_line(text, token.start()))
    try:
        data = tomllib.loads(text)
    except RecursionError as error:
        raise TooComplexError(_NESTED) from error
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        # sys.get_int_max_str_digits()
        digits = _LONG_INTEGER.search(text)
        line = None if digits is None else _line(text, digits.start())
        raise TooComplexError(_NO_INTEGER, line=line) from error
    _check(data)
    return data


def _check(data: Mapping[str, Any]) -> None:
    pending: list[tuple[key_paths.KeyPath, Any]] = [((), data)]
    count = 0
    while pending:
        path, value = pending.pop()
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise TooComplexError(_NO_INTEGER, path=path)
        if not isinstance(value, dict | list):
            continue
        if isinstance(value, dict) and any(len(key) > MAX_KEY_CHARACTERS for key in value):
            message = f"a key is longer than {MAX_KEY_CHARACTERS} characters"
            raise TooComplexError(message, path=path)
        count += len(value)
        if count > MAX_VALUES:
            raise TooComplexError(f"more than {MAX_VALUES} keys and values")
        if value and len(path) >= MAX_DEPTH:
            raise TooComplexError(_NESTED, path=path[:3])
        items = value.items() if isinstance(value, dict) else enumerate(value)
        pending.extend(((*path, key), item) for key, item in items)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
