"""A database and its transactions, the same for SQLite and PostgreSQL.

One process at a time writes to a database: all that is stored relies on it.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import logging
import pathlib
import threading
import time
import typing
from collections.abc import Iterator
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import exc

from db import tables, upgrades
from db.tables import column_types
from db.tables.jobs import SETTINGS
from orchestrator import errors

if typing.TYPE_CHECKING:
    from db import checks

#: How long a writer waits for another one.
BUSY_TIMEOUT_SECONDS = 30.0
#: How long a process waits for the upgrade of a large database by another one.
UPGRADE_TIMEOUT_SECONDS = 600.0
#: How long a damaged row is searched for, to name it.
_SEARCH_SECONDS = 3.0
#: Rows in memory at a time while a database is copied.
_COPIED_ROWS = 5_000


class Mode(enum.Enum):
    READ = "read"
    WRITE = "write"
    WRITE_DURABLY = "write durably"
    UPGRADE = "upgrade"


class Database(abc.ABC):
    """The database of one user; its tables are created, upgraded and checked at their first use."""

    def __init__(
        self,
        url: sa.URL,
        *,
        shown_name: str,
        driver_error: type[Exception],
        migrations: upgrades.Migrations = upgrades.SHIPPED,
        **options: Any,
    ) -> None:
        """`options` are those of create_engine; `shown_name` is the database in messages."""
        self.shown_name = shown_name
        self._driver_error = driver_error
        self._migrations = migrations
        self._ready = False
        #: the damage that was met: this process writes nothing more
        self._damage: errors.DamageError | None = None
        # One writer in each process too: a file lock belongs to the process, so that two threads
        # would both get it, and the first that closes the file would release it (fcntl(2)).
        self._one_thread = threading.Lock()
        # It logs the traceback of an interrupt (Ctrl-C) while a connection is returned, and raises
        # it as well.
        logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
        self._engine = sa.create_engine(url, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        self._engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Yield a connection that sees one moment of the database and cannot change it."""
        with self.plain_errors(), contextlib.ExitStack() as stack:
            yield self._open_reader(stack)

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[sa.Connection]:
        """Yield the only connection that may write now; commit at the end, roll back on any error.

        With `durable` the commit survives a power cut; else it may be lost then, but never torn.
        """
        if self._damage is not None:
            raise self._damage
        with self.plain_errors():
            self._prepare()
            with self._one_thread, self._write_lock():
                with self._transaction(Mode.WRITE_DURABLY if durable else Mode.WRITE) as connection:
                    yield connection

    def version(self) -> str | None:
        """Return the revision of the tables, without changing anything."""
        with self.plain_errors(), self._connection(Mode.READ) as connection:
            return upgrades.read_version(connection, self.shown_name)

    def describe(self) -> str:
        """Return one line: the schema version and the kind of the database."""
        with self.plain_errors(), self._transaction(Mode.READ) as connection:
            version = upgrades.read_version(connection, self.shown_name)
            return f"schema {version}, {self._kind(connection)}"

    def upgrade(self) -> tuple[str | None, pathlib.Path | None]:
        """Upgrade the tables to our revision; return the earlier revision and the backup."""
        with self.plain_errors():
            return self._upgrade()

    def findings(self, row_checks: checks.RowChecks) -> Iterator[checks.Finding]:
        """Yield everything that is wrong with the database."""
        from db import checks

        with self.plain_errors():
            self._prepare()
            with self._lenient_connection() as connection:
                yield from self._own_findings(connection)
                yield from checks.check_all(connection, row_checks)

    def first_finding(
        self, row_checks: checks.RowChecks, *, seconds: float
    ) -> checks.Finding | None:
        """Return something that is wrong with a row, if it is found within this time."""
        from db import checks

        until = time.monotonic() + seconds
        with self.plain_errors(), self._lenient_connection() as connection:
            return next(checks.check_all(connection, row_checks, until=until), None)

    def backup(self, target: pathlib.Path) -> None:
        """Copy the live database to the new SQLite file `target`; raises FileExistsError."""
        with self.plain_errors():
            self._prepare()
            self._backup(target)

    @abc.abstractmethod
    def restore(self, backup: pathlib.Path, row_checks: checks.RowChecks) -> pathlib.Path | None:
        """Replace the database by a backup; return where the old one is kept."""

    def copy_to(self, target: Database) -> int:
        """Copy all rows to the empty database `target`; return their number."""
        with self.reading() as source, target.writing(durable=True) as sink:
            for table in tables.METADATA.sorted_tables:
                if table is not SETTINGS and sink.execute(sa.select(table).limit(1)).first():
                    raise errors.ConflictError(
                        f"{target.shown_name} is not empty: {table.name} has rows. "
                        "Name an empty database."
                    )
            # The settings were created with the tables.
            sink.execute(sa.delete(SETTINGS))
            count = 0
            options = {"stream_results": True, "max_row_buffer": _COPIED_ROWS}
            # Parents come first.
            for table in tables.METADATA.sorted_tables:
                rows = source.execute(sa.select(table), execution_options=options).mappings()
                for part in rows.partitions(_COPIED_ROWS):
                    sink.execute(sa.insert(table), [dict(row) for row in part])
                    count += len(part)
            target._continue_numbering(sink, self._last_numbers(source))
        return count

    @abc.abstractmethod
    def exists(self) -> bool:
        """Return whether there is something to read, without creating it."""

    def _prepare(self) -> None:
        """Create or upgrade the tables, once in each process."""
        if not self._ready:
            with self._transaction(Mode.READ):
                pass

    def _prepare_file(self) -> None:  # noqa: B027  (a server has no file)
        """Create the database, and check where it is stored, before the first connection."""

    def _is_current(self, connection: sa.Connection) -> bool:
        version = upgrades.read_version(connection, self.shown_name)
        return upgrades.is_current(version, self._migrations, self.shown_name)

    @abc.abstractmethod
    def _upgrade(self) -> tuple[str | None, pathlib.Path | None]: ...

    @abc.abstractmethod
    def _backup(self, target: pathlib.Path) -> None: ...

    @abc.abstractmethod
    def _last_numbers(self, connection: sa.Connection) -> dict[str, int]:
        """Return the last assigned row number by table, also of deleted rows."""

    @abc.abstractmethod
    def _continue_numbering(self, connection: sa.Connection, numbers: dict[str, int]) -> None:
        """Assign only row numbers after these."""

    @abc.abstractmethod
    def _kind(self, connection: sa.Connection) -> str:
        """Return how the database is stored, for people."""

    @abc.abstractmethod
    def _own_findings(self, connection: sa.Connection) -> Iterator[checks.Finding]:
        """Yield what the database system itself reports as wrong."""

    @abc.abstractmethod
    def restore_advice(self) -> str:
        """Return a sentence that says how to repair a damaged database."""

    def damaged(self) -> str:
        """Return the message that the database is damaged, and how to examine and repair it."""
        advice = f"{errors.CHECK_DATABASE}; {self.restore_advice()}"
        return f"The database {self.shown_name} is damaged. {advice}"

    def _lenient_connection(self) -> contextlib.AbstractContextManager[sa.Connection]:
        """Connect to read; the driver returns text that it cannot decode as bytes."""
        return self._connection(Mode.READ)

    @abc.abstractmethod
    def _begin(self, mode: Mode) -> Iterator[str]:
        """Yield the statements that begin a transaction; those of a writer wait for its turn."""

    @abc.abstractmethod
    def _translate(self, error: Exception) -> errors.DatabaseError:
        """Return our error for one of the driver."""

    def _open_reader(self, stack: contextlib.ExitStack) -> sa.Connection:
        return stack.enter_context(self._transaction(Mode.READ))

    def _write_lock(self) -> contextlib.AbstractContextManager[object]:
        """Return a lock that a writer holds in addition to its transaction."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _transaction(self, mode: Mode) -> Iterator[sa.Connection]:
        """Yield a connection; the first one checks the schema, and upgrades an older one."""
        if not self._ready:
            self._prepare_file()
        with self._connection(mode) as connection:
            if self._ready or self._is_current(connection):
                self._ready = True
                yield connection
                return
        self._upgrade()
        self._ready = True
        with self._connection(mode) as connection:
            yield connection

    @contextlib.contextmanager
    def _connection(self, mode: Mode) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction that has begun: a wait for a lock fails here."""
        with self._engine.begin() as connection:
            for statement in self._begin(mode):
                # Without parameters PostgreSQL accepts several statements in one message.
                connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
            yield connection

    @contextlib.contextmanager
    def plain_errors(self) -> Iterator[None]:
        """Raise DatabaseError for any error of the database, the driver or a file."""
        try:
            try:
                yield
            except exc.IntegrityError as error:
                message = str(error.orig).partition("\n")[0]
                raise errors.DatabaseError(f"The database refused a change: {message}.") from error
            except (exc.DBAPIError, self._driver_error) as error:
                cause = getattr(error, "orig", None)
                raise self._translate(cause or error) from error
            except FileExistsError:
                raise
            except OSError as error:
                # From the database file and its lock: a transaction uses no other file.
                raise errors.DatabaseError(
                    f"{error.filename or 'The database'} cannot be used ({error.strerror}). "
                    "Make it writable, or set state_dir to another folder."
                ) from error
        except column_types.DamagedValueError as error:
            problem = self._row_of(error)
            self._damage = errors.DamagedRowError(f"{problem}. {self.damaged()}", problem=problem)
            raise self._damage from error
        except errors.DamageError as error:
            self._damage = error
            raise

    def _row_of(self, error: column_types.DamagedValueError) -> str:
        """Return which row has the value: only its column was known where it was read."""
        from db import checks

        table = tables.METADATA.tables.get(error.table)
        unreadable = (exc.SQLAlchemyError, self._driver_error, errors.DatabaseError)
        with contextlib.suppress(*unreadable), self._lenient_connection() as connection:
            until = time.monotonic() + _SEARCH_SECONDS
            if table is not None:
                findings = checks.check_table(connection, table, column=error.column, until=until)
                return str(next((finding for finding in findings if finding.row), error))
        return str(error)


def without_secrets(url: sa.URL) -> str:
    """Return a URL without its password and its options, which can hold secrets too."""
    return url.set(query={}).render_as_string(hide_password=True)
