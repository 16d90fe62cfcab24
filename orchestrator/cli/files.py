"""What is printed, into a file instead where one is named."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from orchestrator import errors


def put(path: Path | None, texts: Iterable[str]) -> None:
    """Print the texts, or write them to the file, which is whole or not there."""
    if path is None:
        for text in texts:
            click.echo(text, nl=False)
        return
    with replacing(path) as new, new.open("w", encoding="utf-8", newline="") as file:
        for text in texts:
            file.write(text)


@contextlib.contextmanager
def printing(path: Path | None) -> Iterator[None]:
    """Let what is printed meanwhile go into the file."""
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
    """Yield a new file's path, which takes the place of `path` at the end, or is removed."""
    if path.exists() and not path.is_file():
        # A pipe or /dev/stdout is written to, not replaced.
        yield path
        return
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            yield new
            os.replace(new, path)
        except OSError as exc:
            # Which OSError it is tells its file name: the new one or its folder.
            raise errors.OrchestratorError(
                f"{path} cannot be written: {exc.strerror or exc}; name another file"
            ) from exc
    finally:
        new.unlink(missing_ok=True)
