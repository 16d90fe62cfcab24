"""The errors of SQLite as messages that name the cause and the fix."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sqlite3

from orchestrator import errors

#: WAL's -shm file grows by this.
_SHARED_MEMORY_BYTES = 32 * 1024
#: Our statements fit our tables: if SQLite says otherwise, the file is not as it was written.
_MISFIT = re.compile(
    r"no such (table|column|index)|has no column|already exists|duplicate column|malformed|"
    r"Could not decode to UTF-8|unsupported file format"
)


def translate(error: Exception, path: pathlib.Path) -> errors.DatabaseError:
    """Return our error for one of sqlite3; `path` is the database file."""
    code = getattr(error, "sqlite_errorcode", None)
    # Extended result codes contain the primary code in their low byte (sqlite.org/rescode.html).
    match None if code is None else code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return errors.DatabaseLockedError(
                f"{path} is locked by another process for too long. "
                f"`fuser {path}` shows which one; try again when it has ended."
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return errors.DatabaseNotWritableError(_why_not_writable(path))
        case sqlite3.SQLITE_NOTADB:
            return errors.DamageError(
                f"{path} is not a database. Move it away, or set state_dir to another folder. If "
                f"it was a database, its first page is damaged: {errors.CHECK_DATABASE}; "
                f"{restore_advice(path)}",
                problem=str(error),
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_MISMATCH:
            return _damage(error, path)
        case None | sqlite3.SQLITE_ERROR if _MISFIT.search(str(error)):
            return _damage(error, path)
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_FULL as primary:
            # The shared memory of WAL is a mapped file, which fails with IOERR on a full disk.
            if primary == sqlite3.SQLITE_FULL or _is_full(path):
                return errors.DatabaseNotWritableError(
                    f"No space left on device: {path}. Nothing was stored. "
                    "Free some space or move state_dir to another disk, then try again."
                )
            return errors.DatabaseError(
                f"{path} cannot be read or written (disk I/O error). "
                "Check your disk quota; else ask the administrator of this file system."
            )
    return errors.DatabaseError(f"{path}: {error}")


def _damage(error: Exception, path: pathlib.Path) -> errors.DamageError:
    advice = f"{errors.CHECK_DATABASE}; {restore_advice(path)}"
    message = f"{error}. The database {path} is damaged. {advice}"
    return errors.DamageError(message, problem=str(error))


def restore_advice(path: pathlib.Path) -> str:
    """Return a sentence that says how to repair a damaged database file."""
    from db.sqlite import backups

    newest = next(iter(backups.find(path)), None)
    hint = "there is none beside it" if newest is None else f"newest: {newest.path}"
    return f"`orchestrator db restore BACKUP` replaces it with a backup ({hint})."


def _is_full(path: pathlib.Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _SHARED_MEMORY_BYTES
    except OSError:
        return False


def _why_not_writable(path: pathlib.Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"The folder {folder} is missing or cannot be entered. Create it, or set state_dir."
    for each in (path, folder):
        if each.exists() and not os.access(each, os.W_OK):
            return f"{each} is read-only for you. Make it writable, or set state_dir elsewhere."
    return f"{path} cannot be opened for writing. Check its owner, its folder and the mount."
