"""Temporary copies of a database file, for processes that can only read.

Each is as large as the database, so the copies of killed processes are removed by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

_PREFIX = "orchestrator-copy-"
#: A file in each folder, locked while its process lives.
_LOCK = "held"


class Copy:
    """A copy of a database file and the files beside it; `close` removes it."""

    def __init__(self, original: pathlib.Path) -> None:
        """Copy the files; OSError if they are missing or there is no space."""
        self._original = original
        self._state = _state(original)
        _remove_abandoned()
        self._stack = contextlib.ExitStack()
        name = self._stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX))
        self.path = pathlib.Path(name, original.name)
        try:
            self._stack.callback(os.close, _lock(self.path.parent))
            for source in _files(original):
                if source.exists():
                    shutil.copyfile(source, self.path.with_name(source.name))
        except OSError:
            self._stack.close()
            raise

    def is_current(self) -> bool:
        """Return whether the original has not changed since the copy was started."""
        return _state(self._original) == self._state

    def close(self) -> None:
        self._stack.close()


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the files with the content: also the last commits, and what a dead writer started."""
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-journal")]


def _state(path: pathlib.Path) -> tuple[object, ...]:
    """Return what changes with the content."""
    statuses = [path.stat(), *(file.stat() for file in _files(path)[1:] if file.exists())]
    return tuple((status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses)


def _lock(folder: pathlib.Path) -> int:
    """Mark a folder as in use until the returned descriptor is closed or the process ends."""
    new = folder / f"{_LOCK}.new"
    descriptor = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # It gets its name when it is locked.
    new.rename(folder / _LOCK)
    return descriptor


def _remove_abandoned() -> None:
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.geteuid():
                continue
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)
