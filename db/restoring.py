"""A backup put in place of a database file. The old file is kept, and one of them is always there.

Each step is on the disk before the next. The new file lies beside the database, whole; the old one
gets a second name; the new one gets the name READY, and from there on it is the database: its WAL,
which belongs to the old one, goes away, and READY gets the database's name. What a killed process
left behind READY is finished by the next one that opens the database.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import pathlib
import shutil
import sqlite3

from db import contents, errors, filesystem, schema, session

_LOCK_SECONDS = 30.0
_DRAFT, _READY = ".restore-draft", ".restore-ready"
#: What is wrong with a backup is counted so far.
_MOST_COUNTED = 1000
#: What belongs to the database file under its name.
_BESIDE = ("-wal", "-shm", "-journal")


def locked(database: pathlib.Path) -> contextlib.AbstractContextManager[int]:
    """Hold the lock of who upgrades or restores a database."""
    lock = database.with_name(f"{database.name}.lock")
    return filesystem.file_lock(lock, timeout_seconds=_LOCK_SECONDS)


def draft_of(backup: pathlib.Path, database: pathlib.Path) -> pathlib.Path:
    """Return a new copy of a backup beside the database; CorruptError where it is no database."""
    draft = database.with_name(database.name + _DRAFT)
    remove(draft)
    # What nobody can change meanwhile needs no locks, which a read-only folder refuses.
    way = "mode=ro" if backup.with_name(f"{backup.name}-wal").exists() else "immutable=1"
    try:
        with contextlib.closing(
            sqlite3.connect(f"{backup.absolute().as_uri()}?{way}", uri=True)
        ) as source:
            schema.copy_database(source, draft)
    except sqlite3.Error as error:
        raise _refused(backup, error) from error
    return draft


def check(copy: session.Database, backup: pathlib.Path, checks: contents.Checks) -> str:
    """Bring the copy of a backup to our revision and return the one that it had.

    CorruptError where it is damaged.
    """
    # What is said of the copy is true of the backup, and people know that one.
    copy.place = str(backup)
    try:
        version = copy.version()
        if version is None:
            raise errors.CorruptError("there are no tables in it")
        found = list(itertools.islice(copy.findings(checks), _MOST_COUNTED))
        if found:
            more = f", and {len(found) - 1} more" if found[1:] else ""
            raise errors.CorruptError(f"{found[0]}{more}")
    except errors.CorruptError as error:
        raise _refused(backup, error.problem) from error
    return version


def _refused(backup: pathlib.Path, problem: object) -> errors.CorruptError:
    return errors.CorruptError(
        f"{backup} cannot be restored: {problem}. Nothing was changed; name another backup."
    )


def remove(draft: pathlib.Path) -> None:
    """Remove a file and what SQLite and an upgrade leave beside it."""
    for path in draft.parent.glob(f"{draft.name}*"):
        path.unlink(missing_ok=True)


def replace(database: pathlib.Path, draft: pathlib.Path) -> pathlib.Path | None:
    """Put a checked draft in place; return under which name the old file is kept, if there was one.

    Within locked(). LockedError where another process has the database open.
    """
    with contextlib.ExitStack() as stack:
        kept = None
        if database.exists():
            stack.enter_context(filesystem.alone(database))
            kept = _keep(database)
        schema.sync(draft)
        draft.rename(database.with_name(database.name + _READY))
        _finish(database)
    return kept


def finish(database: pathlib.Path) -> None:
    """Go on where a process was killed that put a backup in place."""
    if database.with_name(database.name + _READY).exists():
        with locked(database):
            _finish(database)


def _finish(database: pathlib.Path) -> None:
    ready = database.with_name(database.name + _READY)
    if not ready.exists():
        return
    schema.sync(database.parent)
    for end in _BESIDE:
        database.with_name(database.name + end).unlink(missing_ok=True)
    schema.sync(database.parent)
    ready.rename(database)
    schema.sync(database.parent)


def _keep(database: pathlib.Path) -> pathlib.Path:
    now = datetime.datetime.now(datetime.UTC)
    kept = database.with_name(f"{database.name}.{now:%Y%m%dT%H%M%S%fZ}.replaced")
    for end in ("", *_BESIDE):
        path = database.with_name(database.name + end)
        if path.exists():
            try:
                os.link(path, kept.with_name(kept.name + end))
            except OSError:
                # A file system without links.
                shutil.copy2(path, kept.with_name(kept.name + end))
    schema.sync(database.parent)
    return kept
