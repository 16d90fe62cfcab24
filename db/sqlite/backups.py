"""Backups of a database file, which are stored beside it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import os
import pathlib
import sqlite3

from db.sqlite import filesystem

_SUFFIX = ".backup"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backup:
    path: pathlib.Path
    made_at: datetime.datetime
    size_bytes: int


def new_path(database: pathlib.Path, version: str) -> pathlib.Path:
    """Return the path of a new backup; `version` is the revision of the tables."""
    now = datetime.datetime.now(datetime.UTC)
    return database.with_name(f"{database.name}.{version}.{now:%Y%m%dT%H%M%S%fZ}{_SUFFIX}")


def find(database: pathlib.Path) -> list[Backup]:
    """Return the backups beside a database, newest first."""
    backups = []
    with contextlib.suppress(OSError):
        for path in database.parent.iterdir():
            if path.name.startswith(f"{database.name}.") and path.name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    made_at = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
                    backups.append(Backup(path=path, made_at=made_at, size_bytes=status.st_size))
    return sorted(backups, key=lambda backup: backup.made_at, reverse=True)


def copy_database(source: sqlite3.Connection, target: pathlib.Path) -> None:
    """Copy a live database to the new file `target` (0600) with the backup API of SQLite.

    The file gets its name when all of it is on the disk. Raises FileExistsError.
    """
    if target.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    draft = target.with_name(f"{target.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.closing(sqlite3.connect(draft)) as copy:
            source.backup(copy)
            # In the journal mode of the original the copy would need a -wal file.
            copy.execute("PRAGMA journal_mode=DELETE")
        filesystem.sync(draft)
        try:
            # Unlike a rename, this refuses a name that was taken meanwhile.
            os.link(draft, target)
        except FileExistsError:
            raise
        except OSError:
            # A file system without links.
            draft.rename(target)
        filesystem.sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)
