"""Opening a log."""

from __future__ import annotations

import os
import stat

from orchestrator import errors

NO_LOG_YET = "no log yet"


def open_log(path: str) -> tuple[int, os.stat_result]:
    """Return a file descriptor and its status; OSError where there is no regular file to read."""
    # Not blocking: opening a FIFO, which a job may put there, would wait for a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise OSError("not a regular file")
    return handle, status


def existing(path: str) -> int:
    """Return a file descriptor; NotFoundError where there is no log, OrchestratorError else."""
    try:
        return open_log(path)[0]
    except FileNotFoundError as error:
        message = f"{NO_LOG_YET}: {path} appears when the job starts"
        raise errors.NotFoundError(message) from error
    except OSError as error:
        raise errors.OrchestratorError(f"cannot read {path}: {error.strerror or error}") from error
