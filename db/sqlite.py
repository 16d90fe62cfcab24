"""The database as an SQLite file: the file itself, its locks, its transactions.

SQLite's rules, measured: with the default deferred BEGIN 146 of 600 read-modify-write transactions
of four processes fail with "database is locked"; with BEGIN IMMEDIATE none does.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import stat
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from db import (
    backups,
    contents,
    copies,
    errors,
    filesystem,
    restoring,
    schema,
    session,
    statements,
)

#: Keeps the write-ahead log from staying as large as it once was.
_JOURNAL_SIZE_LIMIT_BYTES = 64 * 1024 * 1024
#: A file that others write can be opened beside them, soon if not now.
_MOST_COPIES = 3
#: A database from elsewhere can hold SQL of its own, which runs whenever something is stored. We
#: make no trigger; views of the user's own change nothing.
_FOREIGN = (
    "SELECT type, name, tbl_name FROM sqlite_master WHERE type IN ('trigger', 'view') ORDER BY name"
)
_TABLES = frozenset(table.name for table in contents.tables())


class Database(session.Database):
    """One SQLite file."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        migrations: schema.Migrations = schema.SHIPPED,
        find_locality: Callable[[pathlib.Path], filesystem.Locality] = filesystem.locality,
    ) -> None:
        super().__init__(
            sa.URL.create("sqlite", database=str(path)),
            place=str(path),
            driver_error=sqlite3.Error,
            migrations=migrations,
            # isolation_level None: Python's sqlite3 begins no transaction of its own.
            connect_args={"timeout": session.BUSY_TIMEOUT_SECONDS, "isolation_level": None},
        )
        self.path = path
        self._find_locality = find_locality
        self._locality: filesystem.Locality | None = None
        self._copy: copies.Copy | None = None
        self._of_copy: Database | None = None
        sa.event.listen(self._engine, "do_connect", self._before_connect)
        sa.event.listen(self._engine, "connect", self._on_connect)

    def close(self) -> None:
        super().close()
        self._drop_copy()

    def exists(self) -> bool:
        return self.path.exists()

    def _last_numbers(self, connection: sa.Connection) -> dict[str, int]:
        found = connection.execute(sa.text("SELECT name, seq FROM sqlite_sequence"))
        return {name: number for name, number in found}

    def _go_on_from(self, connection: sa.Connection, numbers: dict[str, int]) -> None:
        known = self._last_numbers(connection)
        for name, number in numbers.items():
            words = (
                "UPDATE sqlite_sequence SET seq = max(seq, :number) WHERE name = :name"
                if name in known
                else "INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)"
            )
            connection.execute(sa.text(words), {"name": name, "number": number})

    def _keeping(self, connection: sa.Connection) -> str:
        mode = connection.scalar(sa.text("PRAGMA journal_mode"))
        return f"journal {mode}, {self._look_up_locality().value} disk"

    def _complaints(self, connection: sa.Connection) -> Iterator[contents.Finding]:
        try:
            for (text,) in connection.execute(sa.text("PRAGMA integrity_check")):
                if text != "ok":
                    yield contents.Finding(problem=str(text))
            for kind, name, table in connection.execute(sa.text(_FOREIGN)):
                if kind == "trigger" or name in _TABLES:
                    what = f"{kind} {name!r}" + (f" of {table}" if kind == "trigger" else "")
                    told = "was not made by orchestrator, and changes what is stored or read"
                    yield contents.Finding(problem=f"the {what} {told}")
        except exc.DBAPIError as error:
            yield contents.Finding(problem=f"not all pages can be read: {error.orig}")

    def damaged(self) -> str:
        return errors.damaged(self.path)

    @contextlib.contextmanager
    def _lenient(self, connection: sa.Connection) -> Iterator[None]:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.text_factory = _text_or_bytes
        try:
            yield
        finally:
            driver.text_factory = str

    @contextlib.contextmanager
    def _session(self, mode: session.Mode) -> Iterator[statements.Session]:
        with super()._session(mode) as opened:
            if mode is not session.Mode.READ and opened.connection().info["file"] != self._file():
                raise errors.LockedError(
                    f"Another file was put in place of {self.path} meanwhile; nothing was "
                    "stored. Run the command again."
                )
            yield opened

    def _reader(self, stack: contextlib.ExitStack) -> statements.Session:
        """Return a session on a copy of the file where a full or read-only disk is in the way.

        To read in WAL mode SQLite makes a file of 32 KiB beside the database (3.40).
        """
        try:
            with self._plain_errors():
                opened = stack.enter_context(self._session(session.Mode.READ))
                # SQLite opens the files that it needs at the first query.
                self._send(opened.connection(), "SELECT 1 FROM sqlite_master LIMIT 1")
                return opened
        except (errors.DiskFullError, errors.ReadOnlyError):
            with contextlib.suppress(OSError):
                return stack.enter_context(self._copied()._session(session.Mode.READ))
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

    def restore(
        self, backup: pathlib.Path, checks: contents.Checks
    ) -> tuple[pathlib.Path | None, str | None]:
        self.close()
        with restoring.locked(self.path):
            draft = restoring.draft_of(backup, self.path)
            try:
                with Database(
                    draft, migrations=self._migrations, find_locality=self._find_locality
                ) as copy:
                    version = restoring.check(copy, backup, checks)
                kept = restoring.replace(self.path, draft)
            finally:
                restoring.remove(draft)
        self._ready, self._damage = False, None
        return kept, version

    def _prepare(self) -> None:
        if self._ready:
            return
        restoring.finish(self.path)
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
        with self._connection(session.Mode.READ) as connection:
            version = schema.read_version(connection, self.place)
            wal = connection.scalar(sa.text("PRAGMA journal_mode")) == "wal"
        return schema.check_version(version, self._migrations, self.place) and wal == local

    def _upgrade(self) -> tuple[str | None, pathlib.Path | None]:
        self._look_up_locality()
        with filesystem.file_lock(self._lock_path, timeout_seconds=session.UPGRADE_TIMEOUT_SECONDS):
            self._make_file()
            self._set_journal_mode()
            with self._connection(session.Mode.READ) as connection:
                before = schema.read_version(connection, self.place)
            if schema.check_version(before, self._migrations, self.place):
                return before, None
            backup = None if before is None else backups.new_path(self.path, before)
            if backup is not None:
                self._check_pages()
                self._backup(backup)
            try:
                with self._connection(session.Mode.UPGRADE) as connection, connection.begin():
                    schema.migrate(connection, self._migrations)
                    _check_parents(connection)
            except BaseException:
                # Nothing was changed, and each new try on a full disk would leave one more.
                if backup is not None:
                    backup.unlink(missing_ok=True)
                raise
        return before, backup

    def _check_pages(self) -> None:
        with self._connection(session.Mode.READ) as connection:
            found = next(self._complaints(connection), None)
        if found is not None:
            raise errors.CorruptError(
                f"{found}. Nothing was upgraded, all is as it was. {self.damaged()}"
            )

    def _set_journal_mode(self) -> None:
        mode = "WAL" if self._locality is filesystem.Locality.LOCAL else "TRUNCATE"
        raw = self._engine.raw_connection()
        try:
            cursor = raw.cursor()
            cursor.execute(f"PRAGMA journal_mode={mode}")
            cursor.close()
        finally:
            raw.close()

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
        return filesystem.file_lock(self._lock_path, timeout_seconds=session.BUSY_TIMEOUT_SECONDS)

    def _before_connect(self, dialect: object, record: Any, *arguments: object) -> None:
        record.info["file"] = self._file()

    def _file(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _on_connect(self, connection: Any, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA journal_size_limit={_JOURNAL_SIZE_LIMIT_BYTES}")
        if self._locality is filesystem.Locality.NETWORK:
            # Unlike WAL this mode is not kept in the file.
            cursor.execute("PRAGMA journal_mode=TRUNCATE")
        try:
            # SQLite reads its table of tables now, and names what is wrong there in its own bytes.
            cursor.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("malformed database schema") from error
        cursor.close()

    def _send(self, connection: sa.Connection, statement: str) -> None:
        # Four of them begin each transaction; SQLAlchemy's preparations take ten times as long.
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.execute(statement)

    def _begin(self, mode: session.Mode) -> Iterator[str]:
        durably = mode is session.Mode.WRITE_DURABLY
        full = self._locality is not filesystem.Locality.LOCAL or durably
        reads = mode is session.Mode.READ
        # None of these can be changed inside a transaction. Tables are copied and dropped in an
        # upgrade, and with foreign keys on a dropped table takes its children along.
        yield f"PRAGMA foreign_keys={'OFF' if mode is session.Mode.UPGRADE else 'ON'}"
        yield f"PRAGMA query_only={'ON' if reads else 'OFF'}"
        yield f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}"
        yield "BEGIN" if reads else "BEGIN IMMEDIATE"

    def _translate(self, error: Exception) -> errors.StoreError:
        return errors.translate(error, self.path)


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def _check_parents(connection: sa.Connection) -> None:
    broken = connection.execute(sa.text("PRAGMA foreign_key_check")).fetchall()
    if broken:
        raise errors.CorruptError(
            f"the upgrade would leave {len(broken)} rows without their parent; nothing was changed"
        )
