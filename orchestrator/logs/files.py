"""Opens logs."""

from __future__ import annotations

import errno
import os

from orchestrator import errors, files

NO_LOG_YET = "no log yet"


def open_log(path: str) -> tuple[int, os.stat_result]:
    """Return a file descriptor and its status; raises OSError if there is no regular file."""
    handle = files.open_descriptor(path)
    return handle, os.fstat(handle)


def open_existing(path: str) -> int:
    """Return a file descriptor; raises NotFoundError or OrchestratorError."""
    try:
        return open_log(path)[0]
    except FileNotFoundError as error:
        message = f"{NO_LOG_YET}: {path} appears when the job starts"
        raise errors.NotFoundError(message) from error
    except OSError as error:
        raise errors.OrchestratorError(f"cannot read {path}: {error.strerror or error}") from error


def hole_bytes(handle: int, offset: int, block: bytes) -> int:
    """Return the length of the hole that begins with this block at the offset; 0: no hole."""
    # The file system may answer slowly: only blocks of NUL are looked up.
    if block[:1] != b"\0" or block.count(0) < len(block):
        return 0
    try:
        return os.lseek(handle, offset, os.SEEK_DATA) - offset
    except OSError as error:
        # ENXIO: the hole reaches to the end of the file.
        return os.fstat(handle).st_size - offset if error.errno == errno.ENXIO else 0
