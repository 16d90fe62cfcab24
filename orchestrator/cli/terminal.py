"""Where text leaves: stdout and stderr, on which characters that act on a terminal are escaped.

What a command prints may hold text from job logs, Slurm, git, file names and the database. The
streams themselves escape it, so it does not matter what writes: a command, click or a traceback.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterable

from orchestrator.text import escaping


class Escaping:
    """A text stream that escapes what it is given; all else is that of the stream behind it."""

    def __init__(self, stream: typing.TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(escaping.lines(text))

    def writelines(self, texts: Iterable[str]) -> None:
        self.stream.writelines(map(escaping.lines, texts))

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self.stream, name)


def escape_streams() -> None:
    """Let sys.stdout and sys.stderr escape from now on, to the end of the process."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Escaping):
            setattr(sys, name, Escaping(stream))


def unescaped() -> typing.TextIO:
    """Return stdout for text with escape sequences of our own; who writes escapes the rest."""
    return sys.stdout.stream if isinstance(sys.stdout, Escaping) else sys.stdout


def clear() -> None:
    """Clear the screen, as click.clear() does."""
    unescaped().write("\x1b[2J\x1b[1;1H")


def bytes_stream() -> typing.BinaryIO:
    """Return stdout for the bytes of logs, behind what was printed before."""
    sys.stdout.flush()
    return unescaped().buffer


def print_exactly(text: str) -> None:
    """Print a text for programs, such as a script or a path: as it is, except on a terminal."""
    stream = sys.stdout if sys.stdout.isatty() else unescaped()
    stream.write(text)
