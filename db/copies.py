"""Copies of the database file in folders of their own, for who can only read.

Those of processes that were killed are removed by the next: each is as large as the database.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

_PREFIX = "orchestrator-copy-"
#: The file in each folder that is locked while its process lives.
_HELD = "held"


class Copy:
    """A copy of a database file, with all that holds its content; `close` removes it."""

    def __init__(self, original: pathlib.Path) -> None:
        """Copy the file as it is; OSError where there is none, or no room for a copy."""
        self._original = original
        self._state = _state(original)
        _remove_abandoned()
        self._stack = contextlib.ExitStack()
        name = self._stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX))
        self.path = pathlib.Path(name, original.name)
        try:
            self._stack.callback(os.close, _hold(self.path.parent))
            for source in _files(original):
                if source.exists():
                    shutil.copyfile(source, self.path.with_name(source.name))
        except OSError:
            self._stack.close()
            raise

    def is_current(self) -> bool:
        """Return whether the original is as it was when the copy was begun."""
        return _state(self._original) == self._state

    def close(self) -> None:
        self._stack.close()


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    """Return all that holds the content: what was committed last, and what a dead writer began."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-journal")]


def _state(path: pathlib.Path) -> tuple[object, ...]:
    """Return what changes with the content."""
    found = [path.stat(), *(file.stat() for file in _files(path)[1:] if file.exists())]
    return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)


def _hold(folder: pathlib.Path) -> int:
    """Mark a folder as in use and return a descriptor: the lock ends with it, or the process."""
    new = folder / f"{_HELD}.new"
    descriptor = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # Under its name it is never seen unlocked.
    new.rename(folder / _HELD)
    return descriptor


def _remove_abandoned() -> None:
    """Remove the copies of our processes that were killed: each is as large as the database."""
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.geteuid():
                continue
            descriptor = os.open(folder / _HELD, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)
