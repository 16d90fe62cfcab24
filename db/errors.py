"""What can go wrong with the database, and with SQLite's file, as sentences that name the cure."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sqlite3

from db import backups

#: What WAL's -shm file grows by.
_SHARED_MEMORY_BYTES = 32 * 1024
_SHOWN_CHARACTERS = 60
#: Our statements fit our tables: where SQLite says otherwise the file is not as it was written.
_MISFIT = re.compile(
    r"no such (table|column|index)|has no column|already exists|duplicate column|malformed|"
    r"Could not decode to UTF-8|unsupported file format"
)


class StoreError(Exception):
    """The database cannot be used."""


class LockedError(StoreError):
    """Another process holds the database for too long."""


class ReadOnlyError(StoreError):
    """The database or its folder cannot be written."""


class DiskFullError(StoreError):
    """There is no room for the database to grow."""


class CorruptError(StoreError):
    """The file is no database, or a damaged one."""

    def __init__(self, message: str, *, problem: str = "") -> None:
        """`problem`: what is damaged, without the way back."""
        super().__init__(message)
        self.problem = problem or message


class DamagedValueError(CorruptError):
    """A value that is stored is none that its column can hold."""

    def __init__(self, table: str, column: str, value: object, expected: str) -> None:
        super().__init__(f"{table}: {wrong_value(column, value, expected)}")
        self.table, self.column, self.value, self.expected = table, column, value, expected


class DamagedRowError(CorruptError):
    """A row that is stored is damaged; the message says which."""


class UnsafeFileSystemError(StoreError):
    """The file system cannot keep several hosts from writing at once."""


class UnreachableError(StoreError):
    """The server does not answer, or does not let us in."""


class NotEmptyError(StoreError):
    """Rows cannot be copied to where others are."""


class NewerSchemaError(StoreError):
    """The database was written by a newer version."""


def wrong_value(column: str, value: object, expected: str) -> str:
    """Return in words that a column holds a value, and what it should hold."""
    if value is None:
        return f"{column} is missing"
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
    told = f"{shown}, bytes that are no UTF-8 text" if isinstance(value, bytes) else shown
    return f"{column} is {told}, not {expected}"


def damaged(path: pathlib.Path) -> str:
    """Return that a database file is damaged, and the way back."""
    return f"The database {path} is damaged. {backups.way_back(path)}"


def translate(error: Exception, path: pathlib.Path) -> StoreError:
    """Return the plain error for one of sqlite3's; `path` is the database file."""
    code = getattr(error, "sqlite_errorcode", None)
    # Extended result codes carry the primary one in their low byte (sqlite.org/rescode.html).
    match None if code is None else code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return LockedError(
                f"{path} is locked by another process for too long. "
                f"`fuser {path}` shows which one; try again when it has ended."
            )
        case sqlite3.SQLITE_FULL:
            return DiskFullError(_no_space(path))
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return ReadOnlyError(_why_not_writable(path))
        case sqlite3.SQLITE_NOTADB:
            return CorruptError(
                f"{path} is not a database. Move it away, or set state_dir to another folder. If "
                f"it was one, its first page is damaged: {backups.way_back(path)}",
                problem=str(error),
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_MISMATCH:
            return CorruptError(f"{error}. {damaged(path)}", problem=str(error))
        case None | sqlite3.SQLITE_ERROR if _MISFIT.search(str(error)):
            return CorruptError(f"{error}. {damaged(path)}", problem=str(error))
        # The shared memory of WAL is a mapped file: on a full disk it fails so.
        case sqlite3.SQLITE_IOERR if _is_full(path):
            return DiskFullError(_no_space(path))
        case sqlite3.SQLITE_IOERR:
            return StoreError(
                f"{path} cannot be read or written (disk I/O error). "
                "A used up quota shows like this; else ask who runs this file system."
            )
    return StoreError(f"{path}: {error}")


def _no_space(path: pathlib.Path) -> str:
    return (
        f"No space left on device: {path}. Nothing was stored; "
        "make room or move state_dir to another disk, then try again."
    )


def _is_full(path: pathlib.Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _SHARED_MEMORY_BYTES
    except OSError:
        return False


def _why_not_writable(path: pathlib.Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"The folder {folder} is missing or cannot be entered. Make it, or set state_dir."
    for place in (path, folder):
        if place.exists() and not os.access(place, os.W_OK):
            return f"{place} is read-only for you. Make it writable, or set state_dir elsewhere."
    return f"{path} cannot be opened for writing. Look at its owner, its folder and the mount."
