"""Opening a log."""

from __future__ import annotations

import errno
import os

from orchestrator import errors, files

NO_LOG_YET = "no log yet"


def open_log(path: str) -> tuple[int, os.stat_result]:
    """Return a file descriptor and its status; OSError where there is no regular file to read."""
    handle = files.open_descriptor(path)
    return handle, os.fstat(handle)


def hole_bytes(handle: int, offset: int, block: bytes) -> int:
    """Return how long the hole is of which a block was read; 0 for other blocks.

    The file system is asked for blocks of NUL alone, because it may take long to answer. One that
    knows no holes says that there are data.
    """
    if block[:1] != b"\0" or block.count(0) < len(block):
        return 0
    try:
        return os.lseek(handle, offset, os.SEEK_DATA) - offset
    except OSError as error:
        # ENXIO: a hole up to the end of the file.
        return os.fstat(handle).st_size - offset if error.errno == errno.ENXIO else 0


def existing(path: str) -> int:
    """Return a file descriptor; NotFoundError where there is no log, OrchestratorError else."""
    try:
        return open_log(path)[0]
    except FileNotFoundError as error:
        message = f"{NO_LOG_YET}: {path} appears when the job starts"
        raise errors.NotFoundError(message) from error
    except OSError as error:
        raise errors.OrchestratorError(f"cannot read {path}: {error.strerror or error}") from error
