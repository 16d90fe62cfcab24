"""Replacing a database file with a backup. The old file is kept, and one of the two always exists.

Each step is on the disk before the next one. The new file is complete beside the database; the old
one gets a second name; the new one gets the name `.restore-ready` and from then on is the database:
the WAL, which belongs to the old file, is removed, and the new file gets the name of the database.
If the process is killed after `.restore-ready`, the next process that opens the database finishes.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import pathlib
import shutil
import sqlite3

from db import checks, database
from db.sqlite import backups, filesystem
from orchestrator import errors

_LOCK_SECONDS = 30.0
_DRAFT = ".restore-draft"
#: The findings about a backup are counted up to this number.
_MAX_COUNTED = 1000
#: Files of SQLite that belong to the database file with this name.
_SIDE_FILES = ("-wal", "-shm", "-journal")


def lock(path: pathlib.Path) -> contextlib.AbstractContextManager[int]:
    """Hold the lock for upgrades and restores of a database."""
    return filesystem.file_lock(path.with_name(f"{path.name}.lock"), timeout_seconds=_LOCK_SECONDS)


def make_draft(backup: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """Return a copy of a backup beside the database; DamageError if it is not a database."""
    draft = path.with_name(path.name + _DRAFT)
    remove(draft)
    # A file that nobody changes meanwhile needs no locks, which a read-only folder refuses.
    option = "mode=ro" if backup.with_name(f"{backup.name}-wal").exists() else "immutable=1"
    uri = f"{backup.absolute().as_uri()}?{option}"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as source:
            backups.copy_database(source, draft)
    except sqlite3.Error as error:
        raise _cannot_restore(backup, error) from error
    return draft


def check(copy: database.Database, backup: pathlib.Path, row_checks: checks.RowChecks) -> None:
    """Upgrade the copy of a backup; DamageError if it is damaged."""
    # Messages about the copy name the backup.
    copy.shown_name = str(backup)
    try:
        if copy.version() is None:
            raise errors.DamageError("it has no tables")
        findings = list(itertools.islice(copy.findings(row_checks), _MAX_COUNTED))
        if findings:
            more = f", and {len(findings) - 1} more" if findings[1:] else ""
            raise errors.DamageError(f"{findings[0]}{more}")
    except errors.DamageError as error:
        raise _cannot_restore(backup, error.problem) from error


def remove(draft: pathlib.Path) -> None:
    """Remove a file, and the files of SQLite and of an upgrade beside it."""
    for path in draft.parent.glob(f"{draft.name}*"):
        path.unlink(missing_ok=True)


def replace(path: pathlib.Path, draft: pathlib.Path) -> pathlib.Path | None:
    """Replace the database by a checked draft; return the path of the old file, if there was one.

    The caller holds the lock. DatabaseLockedError if another process has the database open.
    """
    with contextlib.ExitStack() as stack:
        kept = None
        if path.exists():
            stack.enter_context(filesystem.lock_out_others(path))
            kept = _keep(path)
        filesystem.sync(draft)
        draft.rename(path.with_name(path.name + filesystem.READY))
        finish(path)
    return kept


def finish(path: pathlib.Path) -> None:
    """Finish a restore, also that of a process that was killed. The caller holds the lock."""
    ready = path.with_name(path.name + filesystem.READY)
    if not ready.exists():
        return
    filesystem.sync(path.parent)
    for suffix in _SIDE_FILES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    filesystem.sync(path.parent)
    ready.rename(path)
    filesystem.sync(path.parent)


def _keep(path: pathlib.Path) -> pathlib.Path:
    now = datetime.datetime.now(datetime.UTC)
    kept = path.with_name(f"{path.name}.{now:%Y%m%dT%H%M%S%fZ}.replaced")
    for suffix in ("", *_SIDE_FILES):
        source = path.with_name(path.name + suffix)
        if source.exists():
            try:
                os.link(source, kept.with_name(kept.name + suffix))
            except OSError:
                # A file system without links.
                shutil.copy2(source, kept.with_name(kept.name + suffix))
    filesystem.sync(path.parent)
    return kept


def _cannot_restore(backup: pathlib.Path, problem: object) -> errors.DamageError:
    return errors.DamageError(
        f"{backup} cannot be restored: {problem}. Nothing was changed. Name another backup."
    )
