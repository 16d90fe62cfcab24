"""Invalid stored values, and restoring a backup step by step."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db import tables
from db.sqlite import restore
from db.sqlite.database import SqliteDatabase
from db.stores.settings import SettingStore
from db.tables.column_types import CheckedType
from orchestrator import errors


def test_each_column_is_checked() -> None:
    """A new column has a type that checks its values, and its own name for the error."""
    for table in tables.METADATA.sorted_tables:
        for column in table.c:
            assert isinstance(column.type, CheckedType), column
            assert (column.type.table, column.type.column) == (table.name, column.name)


def settings(path: Path) -> str:
    with SqliteDatabase(path) as database, database.reading() as db:
        return SettingStore(db).get("which") or ""


def put(path: Path, value: str) -> None:
    with SqliteDatabase(path) as database, database.writing() as db:
        SettingStore(db).put("which", value)


class Killed(BaseException):
    """The process ends here."""


@contextlib.contextmanager
def killed_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let the step with this number, of those that change a folder or the disk, never happen."""
    done: list[str] = []

    def counted(name: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if len(done) == steps:
                raise Killed
            done.append(name)
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "rename", counted("rename", pathlib.Path.rename))
        patch.setattr(pathlib.Path, "unlink", counted("unlink", pathlib.Path.unlink))
        patch.setattr(os, "link", counted("link", os.link))
        patch.setattr(os, "fsync", counted("fsync", os.fsync))
        yield done


def test_killed_during_a_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old or the new database is there with all that it had, whichever step was the last."""
    backup = tmp_path / "backup.db"
    put(backup, "new")
    template = tmp_path / "old.db"
    put(template, "old")
    # What was committed last is in the WAL alone, as a killed writer leaves it.
    with contextlib.closing(sqlite3.connect(template)) as connection:
        connection.execute("UPDATE settings SET value = 'older' WHERE key = 'which'")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("UPDATE settings SET value = 'old' WHERE key = 'which'")
        connection.commit()
        content, log = template.read_bytes(), Path(f"{template}-wal").read_bytes()
    result = []
    for steps in range(100):
        folder = tmp_path / str(steps)
        folder.mkdir()
        path = folder / "x.db"
        path.write_bytes(content)
        Path(f"{path}-wal").write_bytes(log)
        try:
            with killed_after(steps, monkeypatch), SqliteDatabase(path) as database:
                database.restore(backup, {})
            ended = True
        except Killed:
            ended = False
        result.append(settings(path))
        assert not (folder / "x.db.restore-ready").exists()
        if ended:
            break
    assert result[0] == "old" and result[-1] == "new"
    assert result == sorted(result, reverse=True), "once it is new it stays new"
    assert result.count("new") > 3


def test_a_writer_stores_nothing_in_a_replaced_file(tmp_path: Path) -> None:
    path, other = tmp_path / "x.db", tmp_path / "other.db"
    put(path, "old")
    put(other, "new")
    with SqliteDatabase(path) as database:
        with database.reading():
            pass
        draft = restore.make_draft(other, path)
        draft.rename(path)
        with pytest.raises(errors.DatabaseLockedError, match="was replaced by another file"):
            with database.writing() as db:
                SettingStore(db).put("which", "lost")
    assert settings(path) == "new"


def test_damage_that_was_seen_stops_later_writing(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    put(path, "old")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE settings SET value = x'ff' WHERE key = 'which'")
        connection.commit()
    with SqliteDatabase(path) as database:
        with pytest.raises(
            errors.DamagedRowError, match=r"settings row 'which': value is b'\\xff'"
        ):
            with database.reading() as db:
                SettingStore(db).get("which")
        with pytest.raises(errors.DamagedRowError, match="settings row 'which'"):
            with database.writing() as db:
                SettingStore(db).put("more", "")
