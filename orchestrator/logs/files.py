"""Opens logs."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from orchestrator import errors, files

NO_LOG_YET = "no log yet"


@contextlib.contextmanager
def opened(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Return a file descriptor and its status; raises OSError if there is no regular file."""
    handle = files.open_descriptor(path)
    try:
        yield handle, os.fstat(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def existing(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Do the same, but raise NotFoundError or OrchestratorError."""
    with contextlib.ExitStack() as stack:
        try:
            log = stack.enter_context(opened(path))
        except FileNotFoundError as error:
            message = f"{NO_LOG_YET}: {path} appears when the job starts"
            raise errors.NotFoundError(message) from error
        except OSError as error:
            reason = error.strerror or error
            raise errors.OrchestratorError(f"cannot read {path}: {reason}") from error
        yield log


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
