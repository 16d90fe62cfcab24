"""Keys and values with the place each was written: read from TOML, laid over one another."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
import typing
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator import errors, files
from orchestrator.text import escaping
from orchestrator.toml import key_paths, limits, values

#: Nobody writes this much by hand; a device or a log given by mistake must not fill the memory.
_LARGEST_BYTES = 4 * 1024 * 1024
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SYNTAX = re.compile(r"(.*) \(at (?:line ([0-9]+), column [0-9]+|end of document)\)", re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where something was written."""

    #: a file, `--set`, a flag or a variable
    source: str
    line: int | None = None
    #: the line itself
    text: str = ""

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


class _Places(Mapping[key_paths.KeyPath, Origin]):
    """Where each table and key of a TOML text stands: looked up when asked for, mostly never."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source

    @functools.cached_property
    def _found(self) -> Mapping[key_paths.KeyPath, Origin]:
        lines = self._text.split("\n")
        found: dict[key_paths.KeyPath, Origin] = {(): Origin(source=self._source)}
        try:
            numbers = key_paths.key_lines(self._text)
        except RecursionError:  # beyond toml_limits.MAX_DEPTH
            return found
        for path, number in numbers.items():
            line = lines[number - 1].rstrip("\r")
            found[path] = Origin(source=self._source, line=number, text=line)
        return found

    def __getitem__(self, path: key_paths.KeyPath) -> Origin:
        return self._found[path]

    def __iter__(self) -> Iterator[key_paths.KeyPath]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """Nested keys and values, and where each stands."""

    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    #: () is the whole; a key that is missing has the origin of the nearest table above it
    origins: Mapping[key_paths.KeyPath, Origin]

    def origin(self, path: key_paths.KeyPath) -> Origin:
        """Return where the key, or else the nearest table above it, was written."""
        while path not in self.origins:
            path = path[:-1]
        return self.origins[path]

    def problem(self, path: key_paths.KeyPath, message: str) -> errors.Problem:
        """Return a problem with this key, with its place and its line."""
        origin = self.origin(path)
        return errors.Problem(
            source=escaping.visible(origin.source),
            line=origin.line,
            key=dotted(path),
            message=message,
            text=_shown(origin.text),
        )


def _shown(line: str) -> str:
    """Return a line for a message; "" for one with a URL, which may hold a password or be secret.

    Its key may be misspelt, or the line no TOML: it is not known to be a secret's.
    """
    return "" if "://" in line else escaping.visible(line.replace("\t", " "))


def dotted(path: key_paths.KeyPath) -> str:
    """Return a path as a TOML key, with places in arrays as [0]."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = _BARE_KEY.fullmatch(part)
            text += ("." if text else "") + (part if bare else f'"{escaping.visible(part)}"')
    return text


def parse(text: str, source: str) -> tuple[Document, list[errors.Problem]]:
    """Return the keys of a TOML text; with problems where it is none."""
    whole = Origin(source=source)
    try:
        data = limits.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Only its text tells the line before Python 3.14.
        found = _SYNTAX.fullmatch(str(error))
        lines = text.split("\n")
        line = int(found[2]) if found and found[2] else len(text.rstrip().split("\n"))
        problem = errors.Problem(
            source=escaping.visible(source),
            line=line,
            message=f"not TOML: {escaping.visible(found[1] if found else str(error))}",
            text=_shown(lines[min(line, len(lines)) - 1].strip()),
        )
        return Document(origins={(): whole}), [problem]
    except limits.TooComplexError as error:
        document = Document(origins=_Places(text, source) if error.path else {(): whole})
        problem = document.problem(error.path, str(error))
        if error.line is not None:
            problem = dataclasses.replace(problem, line=error.line)
        return Document(origins={(): whole}), [problem]
    return Document(data=data, origins=_Places(text, source)), []


def read(path: Path) -> tuple[Document, list[errors.Problem]]:
    """Return the keys of a TOML file; with problems where it cannot be read."""
    content, problems = read_bytes(path)
    if problems:
        return Document(origins={(): Origin(source=str(path))}), problems
    return parse_bytes(content, str(path))


def read_bytes(path: Path) -> tuple[bytes, list[errors.Problem]]:
    """Return the content of a TOML file; with problems where it cannot be read."""
    try:
        return files.read_bytes(path, limit_bytes=_LARGEST_BYTES), []
    except files.TooLargeError:
        message = "larger than 4 MiB: not a TOML file that a person wrote"
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    return b"", [errors.Problem(source=escaping.visible(str(path)), message=message)]


def parse_bytes(content: bytes, source: str) -> tuple[Document, list[errors.Problem]]:
    """Return the keys of a TOML file's content; with problems where it is not TOML."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text (line {content[: error.start].count(10) + 1})"
        problem = errors.Problem(source=escaping.visible(source), message=message)
        return Document(origins={(): Origin(source=source)}), [problem]
    return parse(text, source)


def leaf(path: key_paths.KeyPath, value: object, origin: Origin) -> Document:
    """Return a document with one value, written outside a file."""
    data: object = value
    for part in reversed(path):
        data = {part: data}
    assert isinstance(data, dict)
    return Document(data=data, origins={(): origin, path: origin})


def merge(lower: Document, upper: Document) -> Document:
    """Lay one document over another: tables are joined, everything else is replaced."""
    replaced: set[key_paths.KeyPath] = set()

    def joined(below: Mapping[str, Any], above: Mapping[str, Any], at: key_paths.KeyPath) -> Any:
        result = dict(below)
        for key, value in above.items():
            path = (*at, key)
            under = result.get(key)
            if isinstance(under, Mapping) and isinstance(value, Mapping):
                result[key] = joined(under, value, path)
                continue
            replaced.add(path)
            result[key] = value
        return result

    data = joined(lower.data, upper.data, ())
    origins = {
        path: origin
        for path, origin in lower.origins.items()
        if not any(path[:length] in replaced for length in range(1, len(path) + 1))
    }
    for path, origin in upper.origins.items():
        if path or () not in origins:
            origins[path] = origin
    return Document(data=data, origins=origins)


def without(document: Document, path: key_paths.KeyPath) -> Document:
    """Return the document less one key."""

    def less(data: Mapping[str, Any], rest: key_paths.KeyPath) -> dict[str, Any]:
        result = dict(data)
        key = typing.cast(str, rest[0])
        if len(rest) == 1:
            result.pop(key, None)
        elif isinstance(result.get(key), Mapping):
            result[key] = less(result[key], rest[1:])
        return result

    origins = {at: origin for at, origin in document.origins.items() if at[: len(path)] != path}
    return Document(data=less(document.data, path), origins=origins)


def forbidden_characters(
    document: Document, lines: Collection[key_paths.KeyPath] = ()
) -> Iterator[tuple[key_paths.KeyPath, str]]:
    """Give the path of each key and value with a character that may not stand in it.

    At the paths in `lines`, newline and tab may stand.
    """

    def walk(value: Any, at: key_paths.KeyPath) -> Iterator[tuple[key_paths.KeyPath, str]]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if found := values.forbidden_character(key):
                    yield (*at, key), f"the key holds {found}, which is refused"
                yield from walk(inner, (*at, key))
        elif isinstance(value, list | tuple):
            for place, inner in enumerate(value):
                yield from walk(inner, (*at, place))
        elif isinstance(value, str):
            if found := values.forbidden_character(value, lines=at in lines):
                yield at, f"holds {found}, which is refused"

    yield from walk(document.data, ())
