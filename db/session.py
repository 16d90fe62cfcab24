"""Opening the database: its file, its locks, its transactions.

SQLite's rules, measured: with the default deferred BEGIN 146 of 600 read-modify-write transactions
of four processes fail with "database is locked"; with BEGIN IMMEDIATE none does.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import sqlite3
import stat
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import exc, orm

from db import copies, errors, filesystem, schema

BUSY_TIMEOUT_SECONDS = 30.0
#: An upgrade of a large database by another process is waited for.
UPGRADE_TIMEOUT_SECONDS = 600.0
#: Keeps the write-ahead log from staying as large as it once was.
_JOURNAL_SIZE_LIMIT_BYTES = 64 * 1024 * 1024
#: A file that others write can be opened beside them, soon if not now.
_MOST_COPIES = 3
_READ = "read"
_WRITE = "write"
_WRITE_DURABLY = "write durably"
_UPGRADE = "upgrade"


class Database:
    """One SQLite file; made, upgraded and checked at its first use."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        migrations: schema.Migrations = schema.SHIPPED,
        find_locality: Callable[[pathlib.Path], filesystem.Locality] = filesystem.locality,
    ) -> None:
        self.path = path
        self._migrations = migrations
        self._find_locality = find_locality
        self._locality: filesystem.Locality | None = None
        self._ready = False
        # The lock of a file is its process's: two threads would both get it, and the first that
        # closes it would take it from the other (fcntl(2)).
        self._one_thread = threading.Lock()
        self._copy: copies.Copy | None = None
        self._of_copy: Database | None = None
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            # isolation_level None: Python's sqlite3 begins no transaction of its own.
            connect_args={"timeout": BUSY_TIMEOUT_SECONDS, "isolation_level": None},
        )
        sa.event.listen(self._engine, "connect", self._on_connect)
        sa.event.listen(self._engine, "begin", self._on_begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        self._engine.dispose()
        self._drop_copy()

    @contextlib.contextmanager
    def reading(self) -> Iterator[orm.Session]:
        """Yield a session that sees one moment of the database and can't change it.

        On a full or read-only disk that is a copy of the file, where the file itself cannot be
        opened: to read in WAL mode SQLite makes a file of 32 KiB beside it (3.40).
        """
        with self._plain_errors(), contextlib.ExitStack() as stack:
            yield self._reader(stack)

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[orm.Session]:
        """Yield the only session that may write now; commit at the end, roll back on any error.

        With `durable` the commit survives a power cut; else it may be lost then, never torn.
        """
        with self._plain_errors():
            self._prepare()
            with self._one_thread, self._write_lock():
                with self._session(_WRITE_DURABLY if durable else _WRITE) as session:
                    # Begin here, so that waiting for the lock fails here and not in mid-work.
                    session.connection()
                    yield session
                    session.commit()

    def version(self) -> str | None:
        """Return the revision of the tables, without changing anything."""
        with self._plain_errors(), self._connection(_READ) as connection:
            return schema.read_version(connection)

    def describe(self) -> str:
        """Return revision, journal mode and kind of file system in one line."""
        with self._plain_errors():
            self._prepare()
            with self._connection(_READ) as connection:
                version = schema.read_version(connection)
                mode = connection.scalar(sa.text("PRAGMA journal_mode"))
            return f"tables {version}, journal {mode}, {self._look_up_locality().value} disk"

    def upgrade(self) -> tuple[str | None, pathlib.Path | None]:
        """Bring the tables to our revision; return the one before and the backup made."""
        with self._plain_errors():
            return self._upgrade()

    def problems(self) -> list[str]:
        """Return what quick_check and foreign_key_check complain about; empty is good."""
        found = []
        with self._plain_errors():
            self._prepare()
            with self._connection(_READ) as connection:
                for (text,) in connection.execute(sa.text("PRAGMA quick_check")):
                    if text != "ok":
                        found.append(str(text))
                for row in connection.execute(sa.text("PRAGMA foreign_key_check")):
                    found.append(f"row {row[1]} of {row[0]} lacks its {row[2]}")
        return found

    def backup(self, target: pathlib.Path) -> None:
        """Copy the live database to the new file `target`; raises FileExistsError."""
        with self._plain_errors():
            self._prepare()
            self._backup(target)

    def _reader(self, stack: contextlib.ExitStack) -> orm.Session:
        try:
            with self._plain_errors():
                session = stack.enter_context(self._session(_READ))
                # SQLite opens what it needs at the first look.
                session.connection().exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1")
                return session
        except (errors.DiskFullError, errors.ReadOnlyError):
            with contextlib.suppress(OSError):
                return stack.enter_context(self._copied()._session(_READ))
            raise

    def _copied(self) -> Database:
        """Return a copy of the file as it is now; OSError where there is room for none."""
        for _ in range(_MOST_COPIES):
            if self._copy is None or self._of_copy is None or not self._copy.is_current():
                self._drop_copy()
                self._copy = copies.Copy(self.path)
                self._of_copy = Database(
                    self._copy.path,
                    migrations=self._migrations,
                    find_locality=lambda _: filesystem.Locality.LOCAL,
                )
            # Another mount of the disk, or room made this moment, lets others write meanwhile: what
            # is copied then may be torn.
            if self._copy.is_current():
                return self._of_copy
        raise OSError(f"{self.path} changes while it is copied")

    def _drop_copy(self) -> None:
        if self._of_copy is not None:
            self._of_copy.close()
        if self._copy is not None:
            self._copy.close()
        self._of_copy = self._copy = None

    def _backup(self, target: pathlib.Path) -> None:
        raw = self._engine.raw_connection()
        try:
            driver = raw.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            try:
                schema.copy_database(driver, target)
            except sqlite3.OperationalError as error:
                raise errors.translate(error, target) from error
        finally:
            raw.close()

    @contextlib.contextmanager
    def _session(self, mode: str) -> Iterator[orm.Session]:
        self._prepare()
        engine = self._engine.execution_options(orchestrator_mode=mode)
        # expire_on_commit would read every record again after the commit.
        with orm.Session(engine, expire_on_commit=False) as session:
            yield session

    @contextlib.contextmanager
    def _connection(self, mode: str) -> Iterator[sa.Connection]:
        with self._engine.execution_options(orchestrator_mode=mode).connect() as connection:
            yield connection

    def _prepare(self) -> None:
        """Make the file, or bring it to our version: once a process."""
        if self._ready:
            return
        if not self.path.exists() or not self._is_current():
            self._upgrade()
        self._tighten()
        if self._look_up_locality() is filesystem.Locality.NETWORK:
            filesystem.prove_locks(self.path.parent)
        self._ready = True

    def _look_up_locality(self) -> filesystem.Locality:
        if self._locality is None:
            self._locality = self._find_locality(self.path)
        return self._locality

    def _is_current(self) -> bool:
        local = self._look_up_locality() is filesystem.Locality.LOCAL
        with self._connection(_READ) as connection:
            version = schema.read_version(connection)
            wal = connection.scalar(sa.text("PRAGMA journal_mode")) == "wal"
        return schema.check_version(version, self._migrations, self.path) and wal == local

    def _upgrade(self) -> tuple[str | None, pathlib.Path | None]:
        self._look_up_locality()
        self._make_folder()
        with filesystem.file_lock(self._lock_path, timeout_seconds=UPGRADE_TIMEOUT_SECONDS):
            self._make_file()
            self._set_journal_mode()
            with self._connection(_READ) as connection:
                before = schema.read_version(connection)
            if schema.check_version(before, self._migrations, self.path):
                return before, None
            backup = None if before is None else self._backup_path(before)
            if backup is not None:
                self._backup(backup)
            try:
                with self._connection(_UPGRADE) as connection, connection.begin():
                    schema.migrate(connection, self._migrations)
            except BaseException:
                # Nothing was changed, and each new try on a full disk would leave one more.
                if backup is not None:
                    backup.unlink(missing_ok=True)
                raise
        return before, backup

    def _set_journal_mode(self) -> None:
        mode = "WAL" if self._locality is filesystem.Locality.LOCAL else "TRUNCATE"
        raw = self._engine.raw_connection()
        try:
            cursor = raw.cursor()
            cursor.execute(f"PRAGMA journal_mode={mode}")
            cursor.close()
        finally:
            raw.close()

    def _backup_path(self, version: str) -> pathlib.Path:
        now = datetime.datetime.now(datetime.UTC)
        return self.path.with_name(f"{self.path.name}.{version}.{now:%Y%m%dT%H%M%S%fZ}.backup")

    def _make_folder(self) -> None:
        folder = self.path.parent
        try:
            # mkdir's mode counts for the last folder only, and the umask is the user's.
            missing = [place for place in (folder, *folder.parents) if not place.exists()]
            for place in reversed(missing):
                place.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise errors.ReadOnlyError(
                f"The folder {folder} cannot be made ({error.strerror}). Make it, or set state_dir."
            ) from error
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise errors.UnsafeFileSystemError(
                f"Everybody may replace files in {folder}. Run `chmod o-w {folder}`, "
                "or set state_dir to a folder of your own."
            )

    def _make_file(self) -> None:
        # Only a new file is opened here: closing a descriptor of a database that is in use drops
        # this process's locks on it (sqlite.org/howtocorrupt.html, 2.2).
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        try:
            os.close(os.open(self.path, flags, 0o600))
        except FileExistsError:
            return
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The name must survive a power cut as well as what is committed under it.
            os.fsync(folder)
        finally:
            os.close(folder)

    def _tighten(self) -> None:
        """Take away what others may do with our file.

        It is never wanted that others read it, and taking it away loses nothing; a refusal would
        only stop the work. Folders that we did not make keep their mode: they may hold more.
        """
        found = self.path.stat()
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
            self.path.chmod(0o600)

    @property
    def _lock_path(self) -> pathlib.Path:
        return self.path.with_name(self.path.name + ".lock")

    def _write_lock(self) -> contextlib.AbstractContextManager[object]:
        """On a network file system writers queue at a lock file before SQLite's own locks.

        Readers need no more than SQLite's locks: they are of the same kind as ours.
        """
        if self._locality is not filesystem.Locality.NETWORK:
            return contextlib.nullcontext()
        return filesystem.file_lock(self._lock_path, timeout_seconds=BUSY_TIMEOUT_SECONDS)

    def _on_connect(self, connection: Any, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA journal_size_limit={_JOURNAL_SIZE_LIMIT_BYTES}")
        if self._locality is filesystem.Locality.NETWORK:
            # Unlike WAL this mode is not kept in the file.
            cursor.execute("PRAGMA journal_mode=TRUNCATE")
        cursor.close()

    def _on_begin(self, connection: sa.Connection) -> None:
        mode = connection.get_execution_options().get("orchestrator_mode", _READ)
        # None of these can be changed inside a transaction. Tables are copied and dropped in an
        # upgrade, and with foreign keys on a dropped table takes its children along.
        full = self._locality is not filesystem.Locality.LOCAL or mode == _WRITE_DURABLY
        for pragma in (
            f"foreign_keys={'OFF' if mode == _UPGRADE else 'ON'}",
            f"query_only={'ON' if mode == _READ else 'OFF'}",
            f"synchronous={'FULL' if full else 'NORMAL'}",
        ):
            connection.exec_driver_sql(f"PRAGMA {pragma}")
        connection.exec_driver_sql("BEGIN" if mode == _READ else "BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except exc.IntegrityError:
            raise
        except exc.DBAPIError as error:
            raise errors.translate(error.orig or error, self.path) from error
        except sqlite3.Error as error:
            raise errors.translate(error, self.path) from error
