"""The database as an SQLite file: the file, its locks, its transactions.

Measured: with the default deferred BEGIN 146 of 600 read-modify-write transactions of four
processes fail with "database is locked"; with BEGIN IMMEDIATE none does.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import stat
import typing
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from db import database, tables, upgrades
from db.database import Mode
from db.sqlite import error_messages, filesystem
from orchestrator import errors

if typing.TYPE_CHECKING:
    from db import checks
    from db.sqlite import copies

# Most commands only open a database and store something. What they rarely need is imported there,
# except the messages of errors: a module cannot be read without a free file descriptor.

#: Keeps the write-ahead log from staying as large as it once was.
_JOURNAL_SIZE_LIMIT_BYTES = 64 * 1024 * 1024
#: Attempts to copy a file that changes meanwhile.
_MAX_COPIES = 3
#: SQL in a foreign database could run whenever something is stored. We create no trigger; views of
#: the user change nothing.
_TRIGGERS_AND_VIEWS = (
    "SELECT type, name, tbl_name FROM sqlite_master WHERE type IN ('trigger', 'view') ORDER BY name"
)


class SqliteDatabase(database.Database):
    def __init__(
        self,
        path: pathlib.Path,
        *,
        migrations: upgrades.Migrations = upgrades.SHIPPED,
        find_locality: Callable[[pathlib.Path], filesystem.Locality] = filesystem.locality,
    ) -> None:
        super().__init__(
            sa.URL.create("sqlite", database=str(path)),
            shown_name=str(path),
            driver_error=sqlite3.Error,
            migrations=migrations,
            # isolation_level None: Python's sqlite3 begins no transaction by itself.
            connect_args={"timeout": database.BUSY_TIMEOUT_SECONDS, "isolation_level": None},
        )
        self.path = path
        self._find_locality = find_locality
        self._locality: filesystem.Locality | None = None
        self._copy: tuple[copies.Copy, SqliteDatabase] | None = None
        sa.event.listen(self._engine, "do_connect", self._before_connect)
        sa.event.listen(self._engine, "connect", self._on_connect)

    def close(self) -> None:
        super().close()
        self._remove_copy()

    def exists(self) -> bool:
        return self.path.exists()

    def _last_numbers(self, connection: sa.Connection) -> dict[str, int]:
        rows = connection.execute(sa.text("SELECT name, seq FROM sqlite_sequence"))
        return {name: number for name, number in rows}

    def _continue_numbering(self, connection: sa.Connection, numbers: dict[str, int]) -> None:
        known = self._last_numbers(connection)
        for name, number in numbers.items():
            statement = (
                "UPDATE sqlite_sequence SET seq = max(seq, :number) WHERE name = :name"
                if name in known
                else "INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)"
            )
            connection.execute(sa.text(statement), {"name": name, "number": number})

    def _kind(self, connection: sa.Connection) -> str:
        mode = connection.scalar(sa.text("PRAGMA journal_mode"))
        return f"journal {mode}, {self._look_up_locality().value} disk"

    def _own_findings(self, connection: sa.Connection) -> Iterator[checks.Finding]:
        from db import checks

        try:
            for (text,) in connection.execute(sa.text("PRAGMA integrity_check")):
                if text != "ok":
                    yield checks.Finding(problem=str(text))
            for kind, name, table in connection.execute(sa.text(_TRIGGERS_AND_VIEWS)):
                if kind == "trigger" or name in tables.METADATA.tables:
                    what = f"{kind} {name!r}" + (f" of {table}" if kind == "trigger" else "")
                    problem = "was not created by orchestrator, and changes what is stored or read"
                    yield checks.Finding(problem=f"the {what} {problem}")
        except exc.DBAPIError as error:
            yield checks.Finding(problem=f"not all pages can be read: {error.orig}")

    def restore_advice(self) -> str:
        return error_messages.restore_advice(self.path)

    @contextlib.contextmanager
    def _lenient_connection(self) -> Iterator[sa.Connection]:
        with self._connection(Mode.READ) as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.text_factory = _text_or_bytes
            try:
                yield connection
            finally:
                driver.text_factory = str

    @contextlib.contextmanager
    def _transaction(self, mode: Mode) -> Iterator[sa.Connection]:
        with super()._transaction(mode) as connection:
            if mode is not Mode.READ and connection.info["file"] != self._file():
                raise errors.DatabaseLockedError(
                    f"{self.path} was replaced by another file meanwhile. Nothing was stored. "
                    "Run the command again."
                )
            yield connection

    def _open_reader(self, stack: contextlib.ExitStack) -> sa.Connection:
        """Return a connection, to a copy of the file if the disk is full or read-only.

        To read in WAL mode SQLite makes a file of 32 KiB beside the database (3.40).
        """
        try:
            with self.plain_errors():
                connection = super()._open_reader(stack)
                # SQLite opens the files that it needs at the first query.
                connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1")
                return connection
        except errors.DatabaseNotWritableError:
            with contextlib.suppress(OSError):
                return stack.enter_context(self._current_copy()._transaction(Mode.READ))
            raise

    def _current_copy(self) -> SqliteDatabase:
        """Return a copy of the file as it is now; OSError if that is impossible."""
        from db.sqlite import copies

        for _ in range(1 + _MAX_COPIES):
            # Another mount of the disk, or space freed just now, lets other processes write
            # meanwhile: a new copy may be torn.
            if self._copy is not None and self._copy[0].is_current():
                return self._copy[1]
            self._remove_copy()
            copy = copies.Copy(self.path)
            database = SqliteDatabase(
                copy.path,
                migrations=self._migrations,
                find_locality=lambda _: filesystem.Locality.LOCAL,
            )
            self._copy = (copy, database)
        raise OSError(f"{self.path} changes while it is copied")

    def _remove_copy(self) -> None:
        for part in reversed(self._copy or ()):
            part.close()
        self._copy = None

    def _backup(self, target: pathlib.Path) -> None:
        from db.sqlite import backups

        with contextlib.closing(self._engine.raw_connection()) as connection:
            driver = connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            try:
                backups.copy_database(driver, target)
            except sqlite3.OperationalError as error:
                raise error_messages.translate(error, target) from error

    def restore(self, backup: pathlib.Path, row_checks: checks.RowChecks) -> pathlib.Path | None:
        from db.sqlite import restore

        self.close()
        with self.plain_errors(), restore.lock(self.path):
            draft = restore.make_draft(backup, self.path)
            try:
                with SqliteDatabase(
                    draft, migrations=self._migrations, find_locality=self._find_locality
                ) as copy:
                    restore.check(copy, backup, row_checks)
                kept = restore.replace(self.path, draft)
            finally:
                restore.remove(draft)
        self._ready, self._damage = False, None
        return kept

    def _prepare_file(self) -> None:
        if self.path.with_name(f"{self.path.name}{filesystem.READY}").exists():
            from db.sqlite import restore

            with restore.lock(self.path):
                restore.finish(self.path)
        if not self.path.exists():
            self._upgrade()
        # Nobody else needs to read our file. Folders that we did not make keep their mode: they may
        # hold other files.
        status = self.path.stat()
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
            self.path.chmod(0o600)
        if self._look_up_locality() is filesystem.Locality.NETWORK:
            filesystem.prove_locks(self.path.parent)

    def _look_up_locality(self) -> filesystem.Locality:
        if self._locality is None:
            self._locality = self._find_locality(self.path)
        return self._locality

    def _is_current(self, connection: sa.Connection) -> bool:
        is_wal = connection.scalar(sa.text("PRAGMA journal_mode")) == "wal"
        is_local = self._look_up_locality() is filesystem.Locality.LOCAL
        return super()._is_current(connection) and is_wal == is_local

    def _upgrade(self) -> tuple[str | None, pathlib.Path | None]:
        from db.sqlite import backups

        is_local = self._look_up_locality() is filesystem.Locality.LOCAL
        timeout_seconds = database.UPGRADE_TIMEOUT_SECONDS
        with filesystem.file_lock(self._lock_path, timeout_seconds=timeout_seconds):
            self._make_file()
            with contextlib.closing(self._engine.raw_connection()) as raw:
                mode = "WAL" if is_local else "TRUNCATE"
                raw.cursor().execute(f"PRAGMA journal_mode={mode}")
            with self._connection(Mode.READ) as connection:
                before = upgrades.read_version(connection, self.shown_name)
                if upgrades.is_current(before, self._migrations, self.shown_name):
                    return before, None
                # Raised here: the end of the block would commit, which fails on a damaged file.
                if before and (problem := next(self._own_findings(connection), None)):
                    raise errors.DamageError(f"{problem}. Nothing was upgraded. {self.damaged()}")
            backup = None if before is None else backups.new_path(self.path, before)
            if backup is not None:
                self._backup(backup)
            try:
                with self._connection(Mode.UPGRADE) as connection:
                    upgrades.migrate(connection, self._migrations)
                    broken = connection.execute(sa.text("PRAGMA foreign_key_check")).fetchall()
                    if broken:
                        raise errors.DamageError(
                            f"The upgrade would leave {len(broken)} rows without their parent. "
                            "Nothing was changed."
                        )
            except BaseException:
                # Nothing was changed, and each new try on a full disk would leave one more.
                if backup is not None:
                    backup.unlink(missing_ok=True)
                raise
            finally:
                # Its connection has no foreign keys.
                self._engine.dispose()
        return before, backup

    def _make_file(self) -> None:
        # Only a new file is opened here: closing a descriptor of a database that is in use drops
        # the locks of this process on it (sqlite.org/howtocorrupt.html, 2.2).
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, flags, 0o600))
            # The name must survive a power cut as well as what is committed under it.
            filesystem.sync(self.path.parent)

    @property
    def _lock_path(self) -> pathlib.Path:
        return self.path.with_name(self.path.name + ".lock")

    def _write_lock(self) -> contextlib.AbstractContextManager[object]:
        """On a network file system writers queue at a lock file before the locks of SQLite."""
        if self._locality is not filesystem.Locality.NETWORK:
            return contextlib.nullcontext()
        return filesystem.file_lock(self._lock_path, timeout_seconds=database.BUSY_TIMEOUT_SECONDS)

    def _before_connect(self, dialect: object, record: Any, *arguments: object) -> None:
        record.info["file"] = self._file()

    def _file(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _on_connect(self, connection: Any, record: object) -> None:
        connection.execute(f"PRAGMA journal_size_limit={_JOURNAL_SIZE_LIMIT_BYTES}")
        connection.execute("PRAGMA foreign_keys=ON")
        if self._locality is filesystem.Locality.NETWORK:
            # Unlike WAL this mode is not kept in the file.
            connection.execute("PRAGMA journal_mode=TRUNCATE")
        try:
            # SQLite reads its schema now. Its message about damage there contains raw bytes.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").close()
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError("malformed database schema") from error

    def _begin(self, mode: Mode) -> Iterator[str]:
        is_reader = mode is Mode.READ
        is_full = self._locality is not filesystem.Locality.LOCAL or mode is Mode.WRITE_DURABLY
        # These cannot be changed inside a transaction.
        yield f"PRAGMA query_only={'ON' if is_reader else 'OFF'}"
        if not is_reader:
            yield f"PRAGMA synchronous={'FULL' if is_full else 'NORMAL'}"
        if mode is Mode.UPGRADE:
            # An upgrade copies and drops tables; with foreign keys on, a dropped table would delete
            # its children.
            yield "PRAGMA foreign_keys=OFF"
        yield "BEGIN" if is_reader else "BEGIN IMMEDIATE"

    def _translate(self, error: Exception) -> errors.DatabaseError:
        return error_messages.translate(error, self.path)


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored
