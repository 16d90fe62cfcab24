"""Write to stdout, stderr and files. Characters that control a terminal are escaped.

What a command prints may contain text from job logs, Slurm, git, file names and the database. The
streams escape it themselves, whether a command, click or a traceback writes to them.
"""

from __future__ import annotations

import contextlib
import locale
import os
import sys
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from orchestrator import errors
from orchestrator.text import escaping


class EscapingStream:
    def __init__(self, stream: typing.TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(escaping.lines(text))

    def writelines(self, texts: Iterable[str]) -> None:
        self.stream.writelines(map(escaping.lines, texts))

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self.stream, name)


def escape_streams() -> None:
    """Make sys.stdout and sys.stderr escape everything until the process ends."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, EscapingStream):
            setattr(sys, name, EscapingStream(stream))


def unescaped() -> typing.TextIO:
    """Return stdout for our own escape sequences; the caller escapes all other text."""
    return sys.stdout.stream if isinstance(sys.stdout, EscapingStream) else sys.stdout


def is_utf8() -> bool:
    """Return whether the terminal shows UTF-8. Output is UTF-8 regardless of LANG."""
    return locale.nl_langinfo(locale.CODESET).upper().replace("-", "") == "UTF8"


def clear() -> None:
    """Clear the screen, as click.clear() does."""
    unescaped().write("\x1b[2J\x1b[1;1H")


def bytes_stream() -> typing.BinaryIO:
    """Return stdout for the bytes of logs, after flushing it."""
    sys.stdout.flush()
    return unescaped().buffer


def print_exactly(text: str) -> None:
    """Print a text for programs, such as a script or a path, unescaped unless on a terminal."""
    stream = sys.stdout if sys.stdout.isatty() else unescaped()
    stream.write(text)


def print_coloured(line: str, colour: str) -> None:
    """Print a line in one of click's colours, and escape what it contains."""
    unescaped().write(click.style(escaping.lines(line), fg=colour) + "\n")


@contextlib.contextmanager
def printing_to(path: Path | None) -> Iterator[None]:
    """Redirect stdout to a file, which is replaced at the end; None: no redirection."""
    if path is None:
        yield
        return
    with (
        replacing(path) as new,
        new.open("w", encoding="utf-8", newline="") as file,
        contextlib.redirect_stdout(file),
    ):
        yield


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new path beside `path`. It replaces `path` at the end, or is removed on an error."""
    if path.exists() and not path.is_file():
        # A pipe or /dev/stdout is written to, not replaced.
        yield path
        return
    new = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        yield new
        os.replace(new, path)
    except OSError as exc:
        raise errors.OrchestratorError(
            f"{path} cannot be written: {exc.strerror or exc}; name another file"
        ) from exc
    finally:
        new.unlink(missing_ok=True)
