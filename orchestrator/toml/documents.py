"""Keys and values with their origins: read from TOML and merged layer by layer."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator import errors, files
from orchestrator.text import escaping
from orchestrator.toml import key_paths, values
from orchestrator.toml.key_paths import KeyPath

_MAX_FILE_BYTES = 4 * 1024 * 1024
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SYNTAX = re.compile(r"(.*) \(at (?:line ([0-9]+), column [0-9]+|end of document)\)", re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    #: a file, `--set`, a flag or a variable
    source: str
    line: int | None = None
    #: the line itself
    text: str = ""

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """Nested keys and values, and the origin of each."""

    data: Mapping[str, Any]
    #: () is the whole document
    origins: Mapping[KeyPath, Origin]

    def origin(self, path: KeyPath) -> Origin:
        """Return the origin of the key, or of the nearest table above it."""
        while path not in self.origins:
            path = path[:-1]
        return self.origins[path]

    def get(self, path: KeyPath) -> Any:
        """Return the value of a key; None if it is missing."""
        value: Any = self.data
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def problem(self, path: KeyPath, message: str) -> errors.Problem:
        origin = self.origin(path)
        return errors.Problem(
            source=escaping.visible(origin.source),
            line=origin.line,
            key=dotted(path),
            message=message,
            text=_line_for_message(origin.text),
        )


@functools.cache
def shipped(name: str) -> Mapping[str, Any]:
    """Return the contents of a TOML file of this package."""
    # importlib.resources takes 10 ms to import.
    return tomllib.loads(Path(__file__).parents[1].joinpath(name).read_text("utf-8"))


def of(data: Mapping[str, Any], source: str) -> Document:
    """Return a document whose keys have no lines."""
    return Document(data=data, origins={(): Origin(source=source)})


def empty(source: str) -> Document:
    return of({}, source)


def _line_for_message(line: str) -> str:
    # A line with a URL may hold a password, also under a misspelt key or where it is no TOML.
    return "" if "://" in line else escaping.visible(line.replace("\t", " "))


def dotted(path: KeyPath) -> str:
    """Return a path as a TOML key, with indexes of arrays as [0]."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = _BARE_KEY.fullmatch(part)
            text += ("." if text else "") + (part if bare else f'"{escaping.visible(part)}"')
    return text


def parse(text: str, source: str) -> tuple[Document, list[errors.Problem]]:
    """Return the keys of a TOML text, and the problems that make it unreadable."""
    lines = text.split("\n")
    path: KeyPath = ()
    try:
        data, key_lines = key_paths.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Before Python 3.14 only the error's text contains the line.
        match = _SYNTAX.fullmatch(str(error))
        message = f"not TOML: {escaping.visible(match[1] if match else str(error))}"
        line = int(match[2]) if match and match[2] else len(text.rstrip().split("\n"))
    except key_paths.TooComplexError as error:
        message, path, line = str(error), error.path, error.line
    else:
        origins = {(): Origin(source=source)} | {
            key: Origin(source=source, line=number, text=lines[number - 1].rstrip("\r"))
            for key, number in key_lines.items()
        }
        return Document(data=data, origins=origins), []
    problem = errors.Problem(
        source=escaping.visible(source),
        line=line,
        key=dotted(path),
        message=message,
        text=_line_for_message(lines[min(line, len(lines)) - 1].strip()),
    )
    return empty(source), [problem]


def read(path: Path) -> tuple[bytes, Document, list[errors.Problem]]:
    """Return the content and the keys of a TOML file, and the problems that make it unreadable."""
    content, source = b"", str(path)
    try:
        content = files.read_bytes(path, limit_bytes=_MAX_FILE_BYTES)
        return content, *parse(content.decode("utf-8-sig"), source)
    except files.TooLargeError:
        message = "larger than 4 MiB: not a TOML file that a person wrote"
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text (line {content[: error.start].count(10) + 1})"
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    problem = errors.Problem(source=escaping.visible(source), message=message)
    return content, empty(source), [problem]


def with_value(document: Document, path: KeyPath, value: object, origin: Origin | str) -> Document:
    """Return the document with a value of one key. origin: or its source."""
    origin = Origin(source=origin) if isinstance(origin, str) else origin
    data: Any = value
    for part in reversed(path):
        data = {part: data}
    return merge(document, Document(data=data, origins={(): document.origins[()], path: origin}))


def merge(lower: Document, upper: Document) -> Document:
    """Lay one document over another: tables are joined, everything else is replaced."""
    replaced: set[KeyPath] = set()

    def join(below: Mapping[str, Any], above: Mapping[str, Any], at: KeyPath) -> dict[str, Any]:
        result = dict(below)
        for key, value in above.items():
            path, old = (*at, key), result.get(key)
            if isinstance(old, Mapping) and isinstance(value, Mapping):
                result[key] = join(old, value, path)
            else:
                replaced.add(path)
                result[key] = value
        return result

    data = join(lower.data, upper.data, ())
    origins = {
        path: origin
        for path, origin in lower.origins.items()
        if not any(path[:length] in replaced for length in range(1, len(path) + 1))
    }
    origins |= {path: origin for path, origin in upper.origins.items() if path}
    return Document(data=data, origins={(): upper.origins[()]} | origins)


def without(document: Document, path: KeyPath) -> Document:
    def remove(data: Mapping[str, Any], rest: KeyPath) -> dict[str, Any]:
        result = {key: value for key, value in data.items() if key != rest[0] or rest[1:]}
        inner = data.get(str(rest[0]))
        if rest[1:] and isinstance(inner, Mapping):
            result[str(rest[0])] = remove(inner, rest[1:])
        return result

    origins = {at: origin for at, origin in document.origins.items() if at[: len(path)] != path}
    return Document(data=remove(document.data, path), origins=origins)


def forbidden_characters(
    document: Document, multi_line: Collection[KeyPath] = ()
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path of each key and value with a forbidden character, and the problem.

    multi_line: values that may contain newline and tab.
    """

    def walk(value: Any, at: KeyPath) -> Iterator[tuple[KeyPath, str]]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if character := values.forbidden_character(key):
                    yield (*at, key), f"the key contains {character}, which is not allowed"
                yield from walk(inner, (*at, key))
        elif isinstance(value, list | tuple):
            for index, inner in enumerate(value):
                yield from walk(inner, (*at, index))
        elif isinstance(value, str):
            if character := values.forbidden_character(value, multi_line=at in multi_line):
                yield at, f"contains {character}, which is not allowed"

    yield from walk(document.data, ())
