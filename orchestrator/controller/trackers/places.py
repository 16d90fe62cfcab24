"""Where exports are written, one process at a time, and how far they came."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from orchestrator import errors, files
from orchestrator.text import escaping
from orchestrator.trackers import progress, records

_LIMIT_BYTES = 256 * 1024 * 1024


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Make a folder and hold its lock; the kernel releases that of a process that dies.

    OSErrors inside become an error that names the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = descriptor(folder / ".orchestrator.lock", 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                # Lustre without the mount option flock.
                if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                    raise
            yield
        finally:
            os.close(lock)
    except OSError as error:
        reason = error.strerror or error
        raise errors.OrchestratorError(
            f"cannot write {error.filename or folder}: {reason}; choose another --output"
        ) from error


def descriptor(path: Path, mode: int) -> int:
    """Open a file to read and write it, or make it.

    In a shared folder another user may have put a link there, which would name a file of ours.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "it is a symbolic link"
        raise


def folder_of(output: Path, run: records.Run) -> Path:
    """Return the folder of a run; raises ConflictError if it is a link."""
    # A job that was submitted without orchestrator may have any name.
    folder = output / run.group / run.name.replace("/", "_")
    for path in (folder, folder.parent) if run.group else (folder,):
        if path.is_symlink():
            raise errors.ConflictError(f"{escaping.visible(str(path))} is a link: remove it")
    return folder


def read_progress(path: Path) -> progress.Progress | None:
    """Return None for an export that is not there, or not readable: all is exported again."""
    try:
        return progress.from_json(files.read_bytes(path, limit_bytes=_LIMIT_BYTES))
    except (OSError, ValueError):
        return None


def write_progress(path: Path, reached: progress.Progress) -> None:
    files.replace(path, progress.to_json(reached), durable=True)
