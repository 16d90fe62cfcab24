"""The database file: how it is created, locked, copied and read."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from db import upgrades
from db.sqlite import error_messages, filesystem
from db.sqlite.database import SqliteDatabase
from db.stores.settings import SettingStore
from db.tables.jobs import SETTINGS
from orchestrator import errors
from orchestrator.controller.session import stores

Opened = Callable[..., SqliteDatabase]
ROOT = Path(upgrades.__file__).parents[1]


def pragma(db: sa.Connection, name: str) -> object:
    return db.scalar(sa.text(f"PRAGMA {name}"))


def test_file_and_folder_are_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "x.db"
    old_umask = os.umask(0)
    store = stores.Store(path)
    try:
        with store.writing() as work:
            work.settings.put("a", "b")
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(old_umask)
        store.close()
    assert modes == {"x.db": 0o600, "x.db-wal": 0o600, "x.db-shm": 0o600, "x.db.lock": 0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700


def test_readable_file_is_tightened(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path) as database, database.writing():
        pass
    path.chmod(0o644)
    with opened(path).reading():
        assert path.stat().st_mode & 0o777 == 0o600


def test_pragmas_on_a_local_disk(tmp_path: Path, opened: Opened) -> None:
    database = opened(tmp_path / "x.db")
    with database.writing() as db:
        assert (pragma(db, "journal_mode"), pragma(db, "synchronous")) == ("wal", 1)
        assert (pragma(db, "foreign_keys"), pragma(db, "busy_timeout")) == (1, 30000)
    with database.writing(durable=True) as db:
        assert pragma(db, "synchronous") == 2
    with database.writing() as db:
        assert pragma(db, "synchronous") == 1


def test_pragmas_on_a_network_disk(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "x.db"
    database = opened(path, find_locality=lambda path: filesystem.Locality.NETWORK)
    for _ in range(2):
        with database.writing() as db:
            assert (pragma(db, "journal_mode"), pragma(db, "synchronous")) == ("truncate", 2)
            with pytest.raises(BlockingIOError):
                subprocess_lock(path.with_name("x.db.lock"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.db", "x.db-journal", "x.db.lock"]


def subprocess_lock(path: Path) -> None:
    """Try the lock as another process would; raises BlockingIOError when it is held."""
    code = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: sys.exit(11)\n"
    )
    status = subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode
    if status == 11:
        raise BlockingIOError
    assert status == 0


def test_database_that_moved_between_kinds_of_disk(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "x.db"
    for locality, mode in [
        (filesystem.Locality.LOCAL, "wal"),
        (filesystem.Locality.NETWORK, "truncate"),
        (filesystem.Locality.LOCAL, "wal"),
    ]:
        database = SqliteDatabase(path, find_locality=lambda path, result=locality: result)
        with database, database.writing() as db:
            assert pragma(db, "journal_mode") == mode


def test_reading_cannot_change_anything(tmp_path: Path, opened: Opened) -> None:
    database = opened(tmp_path / "x.db")
    with pytest.raises(errors.DatabaseNotWritableError), database.reading() as db:
        SettingStore(db).put("a", "b")
    with database.writing() as db:
        SettingStore(db).put("a", "b")
    with database.reading() as db:
        assert SettingStore(db).get("a") is not None


def test_error_rolls_back(tmp_path: Path, opened: Opened) -> None:
    database = opened(tmp_path / "x.db")
    with pytest.raises(KeyboardInterrupt), database.writing() as db:
        SettingStore(db).put("a", "b")
        raise KeyboardInterrupt
    with database.writing() as db:
        assert SettingStore(db).get("a") is None


def test_backup(tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with stores.Store(tmp_path / "x.db") as store:
        with store.writing() as work:
            work.settings.put("a", "b")
        store.backup(target)
        with pytest.raises(errors.ConflictError, match=r"copy\.db exists; name a new file"):
            store.backup(target)
        with pytest.raises(errors.DatabaseError, match="No such file or directory"):
            store.backup(tmp_path / "missing" / "copy.db")
    assert target.stat().st_mode & 0o777 == 0o600
    assert not target.with_name("copy.db-wal").exists()
    with stores.Store(target) as store:
        with store.reading() as work:
            assert work.settings.get("a") == "b"
        assert store.check() == []


def test_strange_path(tmp_path: Path) -> None:
    path = tmp_path / "a ?b%20#c" / "x.db"
    with stores.Store(path) as store, store.reading():
        assert store.shown_name == str(path)
    assert path.exists()


NOBODY = 65534
WRITE_AS_NOBODY = """
import os, pathlib, sys
from db.sqlite.database import SqliteDatabase
from db.stores.settings import SettingStore
import sqlalchemy.dialects.sqlite.pysqlite
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    with SqliteDatabase(pathlib.Path(sys.argv[1])).writing() as db:
        SettingStore(db).put("a", "b")
    print("stored")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "named"), [(0o700, 0o400, "x.db"), (0o500, 0o600, "")]
)
def test_error_of_a_read_only_database(
    folder_mode: int, file_mode: int, named: str, sqlite_template: bytes
) -> None:
    """An ordinary user writes, also where the tests run as root."""
    # Not tmp_path: its parents are closed to other users.
    folder = Path(tempfile.mkdtemp())
    path = folder / "x.db"
    try:
        path.write_bytes(sqlite_template)
        with SqliteDatabase(path) as database, database.writing():
            pass
        path.chmod(file_mode)
        if os.geteuid() == 0:
            for entry in (folder, *folder.iterdir()):
                os.chown(entry, NOBODY, NOBODY)
        folder.chmod(folder_mode)
        answer = subprocess.run(
            [sys.executable, "-c", WRITE_AS_NOBODY, str(path)],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        ).stdout
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)
    assert answer == (
        f"DatabaseNotWritableError: {folder / named} is read-only for you. "
        "Make it writable, or set state_dir elsewhere.\n"
    )


WITHOUT_DESCRIPTORS = """
import os, pathlib, resource, sys
from db.sqlite.database import SqliteDatabase
import sqlalchemy.dialects.sqlite.pysqlite
database = SqliteDatabase(pathlib.Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1,) * 2)
try:
    with database.reading():
        pass
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""


def test_error_without_free_file_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path) as database, database.writing():
        pass
    argv = [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(path)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == (
        f"DatabaseNotWritableError: {path} cannot be opened for writing. "
        "Check its owner, its folder and the mount.\n"
    )


def no_writing(path: Path) -> filesystem.Locality:
    raise errors.DatabaseNotWritableError(f"{path} is read-only for you.")


DYING_WRITER = """\
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for text in ("journal_mode=TRUNCATE", "cache_size=5"):
    connection.execute(f"PRAGMA {text}")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE settings SET value = 'new' WHERE key LIKE 'a%'")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_read_copy_omits_uncommitted_rows_of_a_dead_writer(tmp_path: Path, opened: Opened) -> None:
    """On a network disk: its rollback journal is copied along."""
    path = tmp_path / "x.db"
    network = opened(path, find_locality=lambda _: filesystem.Locality.NETWORK)
    with network.writing() as db:
        rows = [{"key": f"a{n}", "value": "old" * 100} for n in range(500)]
        db.execute(SETTINGS.insert(), rows)
    network.close()
    subprocess.run([sys.executable, "-c", DYING_WRITER, str(path)], check=False)
    assert path.with_name("x.db-journal").stat().st_size > 0
    with opened(path, find_locality=no_writing).reading() as db:
        assert db.scalars(sa.select(SETTINGS.c.value).distinct()).all().count("new") == 0
        assert pragma(db, "quick_check") == "ok"


DYING_READER = """\
import os, pathlib, signal, sys
from orchestrator import errors
from db.sqlite.database import SqliteDatabase
def no_writing(path):
    raise errors.DatabaseNotWritableError("")
with SqliteDatabase(pathlib.Path(sys.argv[1]), find_locality=no_writing).reading():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_copies_of_killed_readers_do_not_pile_up(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / "x.db", tmp_path / "tmp"
    folder.mkdir()
    with SqliteDatabase(path) as database, database.writing():
        pass
    argv = [sys.executable, "-c", DYING_READER, str(path)]
    subprocess.run(argv, check=False, cwd=ROOT, env={**os.environ, "TMPDIR": str(folder)})
    (abandoned,) = folder.iterdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with opened(path, find_locality=no_writing).reading():
        (ours,) = folder.iterdir()
        assert ours != abandoned
        with opened(path, find_locality=no_writing).reading():
            assert len(list(folder.iterdir())) == 2, "what is in use stays"


def test_copy_is_repeated_after_a_concurrent_write(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    with SqliteDatabase(path) as database, database.writing():
        pass
    copyfile, values = shutil.copyfile, iter("ab")

    def copy_and_write(source: Path, target: Path) -> None:
        copyfile(source, target)
        for value in values:
            with SqliteDatabase(path) as other, other.writing() as db:
                SettingStore(db).put("k", value)
            break

    monkeypatch.setattr(shutil, "copyfile", copy_and_write)
    with opened(path, find_locality=no_writing).reading() as db:
        assert SettingStore(db).get("k") == "b"


def test_error_of_a_lock_that_is_not_released(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with (
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder,
        contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other,
    ):
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as refusal:
            other.execute("BEGIN IMMEDIATE")
    plain = error_messages.translate(refusal.value, path)
    assert isinstance(plain, errors.DatabaseLockedError)
    assert str(plain) == (
        f"{path} is locked by another process for too long. "
        f"`fuser {path}` shows which one; try again when it has ended."
    )


def test_an_interrupt_while_a_connection_is_returned_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with SqliteDatabase(tmp_path / "x.db") as database:
        with database.writing():
            pass
        sa.event.listen(database._engine, "reset", interrupt)
        with pytest.raises(KeyboardInterrupt), database.reading():
            pass
        sa.event.remove(database._engine, "reset", interrupt)
    assert caplog.messages == []
