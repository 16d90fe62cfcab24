"""Sessions and transactions, alike for both databases: sqlite.py and postgres.py open them.

One process writes at a time, whichever holds the tables: all that is stored relies on it.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import math
import pathlib
import threading
import time
import types
from collections.abc import Iterator
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import exc

from db import contents, errors, schema, service_tables, statements, transfers

#: A writer waits so long for another one.
BUSY_TIMEOUT_SECONDS = 30.0
#: An upgrade of a large database by another process is waited for.
UPGRADE_TIMEOUT_SECONDS = 600.0
#: A damaged row is looked for so long, to be named.
_LOCATING_SECONDS = 3.0


class Mode(enum.Enum):
    """What a transaction is for."""

    READ = "read"
    WRITE = "write"
    WRITE_DURABLY = "write durably"
    UPGRADE = "upgrade"


class Database(abc.ABC):
    """The tables of one user; made, upgraded and checked at their first use."""

    def __init__(
        self,
        url: sa.URL,
        *,
        place: str,
        driver_error: type[Exception],
        migrations: schema.Migrations = schema.SHIPPED,
        **options: Any,
    ) -> None:
        """Take what create_engine takes, and how the database is called to people."""
        self.place = place
        self._driver_error = driver_error
        self._migrations = migrations
        self._ready = False
        #: what was found damaged: nothing is written any more
        self._damage: errors.CorruptError | None = None
        # One writer a process too: of a file the lock is the process's, so that two threads would
        # both get it, and the first that closes it would take it from the other (fcntl(2)).
        self._one_thread = threading.Lock()
        self._engine = sa.create_engine(url, **options)
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

    @contextlib.contextmanager
    def reading(self) -> Iterator[statements.Session]:
        """Yield a session that sees one moment of the database and can't change it."""
        with self._plain_errors(), contextlib.ExitStack() as stack:
            yield self._reader(stack)

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[statements.Session]:
        """Yield the only session that may write now; commit at the end, roll back on any error.

        With `durable` the commit survives a power cut; else it may be lost then, never torn.
        """
        if self._damage is not None:
            raise self._damage
        with self._plain_errors():
            self._prepare()
            with self._one_thread, self._write_lock():
                with self._session(Mode.WRITE_DURABLY if durable else Mode.WRITE) as session:
                    yield session
                    session.commit()

    def version(self) -> str | None:
        """Return the revision of the tables, without changing anything."""
        with self._plain_errors(), self._connection(Mode.READ) as connection:
            return schema.read_version(connection, self.place)

    def describe(self) -> str:
        """Return revision and how the tables are kept, in one line."""
        with self._plain_errors():
            self._prepare()
            with self._connection(Mode.READ) as connection:
                version = schema.read_version(connection, self.place)
                return f"tables {version}, {self._keeping(connection)}"

    def upgrade(self) -> tuple[str | None, pathlib.Path | None]:
        """Bring the tables to our revision; return the one before and the backup made."""
        with self._plain_errors():
            return self._upgrade()

    def findings(self, checks: contents.Checks) -> Iterator[contents.Finding]:
        """Yield what is wrong with what is stored; nothing is good."""
        with self._plain_errors():
            self._prepare()
            with self._connection(Mode.READ) as connection, self._lenient(connection):
                yield from self._complaints(connection)
                yield from self._of_content(connection, checks)

    def first_finding(self, checks: contents.Checks, *, seconds: float) -> contents.Finding | None:
        """Return what is wrong with a row, where that is found in this time."""
        until = time.monotonic() + seconds
        with (
            self._plain_errors(),
            self._connection(Mode.READ) as connection,
            self._lenient(connection),
        ):
            return next(self._of_content(connection, checks, until=until), None)

    def _of_content(
        self, connection: sa.Connection, checks: contents.Checks, *, until: float = math.inf
    ) -> Iterator[contents.Finding]:
        for table in contents.tables():
            yield from contents.of_table(connection, table, checks, until=until)
        yield from contents.of_links(connection)

    def backup(self, target: pathlib.Path) -> None:
        """Copy the live database to the new SQLite file `target`; raises FileExistsError."""
        with self._plain_errors():
            self._prepare()
            self._backup(target)

    @abc.abstractmethod
    def restore(
        self, backup: pathlib.Path, checks: contents.Checks
    ) -> tuple[pathlib.Path | None, str | None]:
        """Put a backup in place of the database; return where the old one is kept, and the
        revision that the backup's tables had.
        """

    def copy_to(self, target: Database) -> int:
        """Store all that is here in `target`, which must be empty; return how many rows."""
        with self.reading() as ours, target.writing(durable=True) as theirs:
            source, sink = ours.connection(), theirs.connection()
            transfers.check_empty(sink, target.place)
            count = transfers.copy(source, sink)
            target._go_on_from(sink, self._last_numbers(source))
        return count

    @abc.abstractmethod
    def exists(self) -> bool:
        """Return whether there is something to read, without making it."""

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Make the tables, or bring them to our version: once a process."""

    @abc.abstractmethod
    def _upgrade(self) -> tuple[str | None, pathlib.Path | None]: ...

    @abc.abstractmethod
    def _backup(self, target: pathlib.Path) -> None: ...

    @abc.abstractmethod
    def _last_numbers(self, connection: sa.Connection) -> dict[str, int]:
        """Return by table the last number that a row was given, also of rows that are gone."""

    @abc.abstractmethod
    def _go_on_from(self, connection: sa.Connection, numbers: dict[str, int]) -> None:
        """Give none of these numbers again."""

    @abc.abstractmethod
    def _keeping(self, connection: sa.Connection) -> str:
        """Return how the tables are kept, for people."""

    @abc.abstractmethod
    def _complaints(self, connection: sa.Connection) -> Iterator[contents.Finding]:
        """Yield what the database itself finds wrong."""

    @abc.abstractmethod
    def damaged(self) -> str:
        """Return that the database is damaged, and the way back."""

    def _lenient(self, connection: sa.Connection) -> contextlib.AbstractContextManager[object]:
        """Let the driver give what it cannot decode, as bytes."""
        return contextlib.nullcontext()

    @abc.abstractmethod
    def _begin(self, mode: Mode) -> Iterator[str]:
        """Yield the statements that begin a transaction; a writer's wait for its turn."""

    @abc.abstractmethod
    def _translate(self, error: Exception) -> errors.StoreError:
        """Return the plain error for one of the driver's."""

    def _reader(self, stack: contextlib.ExitStack) -> statements.Session:
        return stack.enter_context(self._session(Mode.READ))

    def _write_lock(self) -> contextlib.AbstractContextManager[object]:
        """Return what a writer holds beside its transaction."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _session(self, mode: Mode) -> Iterator[statements.Session]:
        self._prepare()
        # expire_on_commit would read every record again after the commit.
        with statements.Session(self._engine, expire_on_commit=False) as session:
            # Begin here, so that waiting for the lock fails here and not in mid-work. The mode is
            # the connection's: an engine of its own for each would take longer than its statements.
            session.connection(execution_options={statements.MODE: mode})
            yield session

    @contextlib.contextmanager
    def _connection(self, mode: Mode) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            yield connection.execution_options(**{statements.MODE: mode})

    def _on_begin(self, connection: sa.Connection) -> None:
        mode = connection.get_execution_options().get(statements.MODE, Mode.READ)
        for statement in self._begin(mode):
            self._send(connection, statement)

    def _send(self, connection: sa.Connection, statement: str) -> None:
        # Without parameters PostgreSQL takes several statements in one message.
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})

    @contextlib.contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            try:
                yield
            except exc.IntegrityError:
                raise
            except exc.DBAPIError as error:
                cause = error.orig if isinstance(error.orig, Exception) else error
                raise self._translate(cause) from error
            except self._driver_error as error:
                raise self._translate(error) from error
        except errors.DamagedValueError as error:
            problem = self._located(error)
            self._damage = errors.DamagedRowError(f"{problem}. {self.damaged()}", problem=problem)
            raise self._damage from error
        except errors.CorruptError as error:
            self._damage = error
            raise

    def _located(self, error: errors.DamagedValueError) -> str:
        """Return which row has such a value: where it was read only its column was known."""
        table = service_tables.METADATA.tables.get(error.table)
        if table is not None:
            with contextlib.suppress(exc.SQLAlchemyError, self._driver_error, errors.StoreError):
                with self._connection(Mode.READ) as connection, self._lenient(connection):
                    found = contents.of_table(
                        connection,
                        table,
                        {},
                        column=error.column,
                        until=time.monotonic() + _LOCATING_SECONDS,
                    )
                    return str(next((one for one in found if one.row), error))
        return str(error)


def shown(url: sa.URL) -> str:
    """Return a URL as people may see it: its options can hold secrets too."""
    return url.set(query={}).render_as_string(hide_password=True)
