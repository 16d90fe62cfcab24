"""Opening a log."""

from __future__ import annotations

import os

from orchestrator import errors, files

NO_LOG_YET = "no log yet"


def open_log(path: str) -> tuple[int, os.stat_result]:
    """Return a file descriptor and its status; OSError where there is no regular file to read."""
    handle = files.open_descriptor(path)
    return handle, os.fstat(handle)


def existing(path: str) -> int:
    """Return a file descriptor; NotFoundError where there is no log, OrchestratorError else."""
    try:
        return open_log(path)[0]
    except FileNotFoundError as error:
        message = f"{NO_LOG_YET}: {path} appears when the job starts"
        raise errors.NotFoundError(message) from error
    except OSError as error:
        raise errors.OrchestratorError(f"cannot read {path}: {error.strerror or error}") from error
