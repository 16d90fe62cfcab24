"""The database on a PostgreSQL server, for several controllers on several hosts.

If a client or its network fails, its lock is free after DEAD_SECONDS, and neither side waits longer
for the other.
"""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import psycopg
import sqlalchemy as sa

from db import checks, database, upgrades
from db.database import Mode
from db.postgresql import error_messages
from db.sqlite.database import SqliteDatabase
from orchestrator import errors

#: A peer that is silent for so long is dead: by keep-alives on an idle connection, else by sent
#: data that is not acknowledged (tcp(7), TCP_USER_TIMEOUT).
DEAD_SECONDS = 15
CONNECT_TIMEOUT_SECONDS = 10
#: A writer that is stopped (SIGSTOP, an interrupted network) must not block all others.
_IDLE_WRITER_SECONDS = 20
_STATEMENT_SECONDS = 600
#: Number of the advisory lock that each writer takes first.
WRITER = 0x6F726368
_KEEPALIVES = {"idle": 5, "interval": 5, "count": 2}
#: Settings of the server for our sessions. Times are returned in UTC.
_SERVER_SETTINGS = {
    "TimeZone": "UTC",
    "lock_timeout": f"{database.BUSY_TIMEOUT_SECONDS:.0f}s",
    "statement_timeout": f"{_STATEMENT_SECONDS}s",
    "tcp_user_timeout": f"{DEAD_SECONDS}s",
    **{f"tcp_keepalives_{name}": str(value) for name, value in _KEEPALIVES.items()},
}
#: The same settings of libpq for this side, in milliseconds there.
_CLIENT_SETTINGS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "keepalives": 1,
    **{f"keepalives_{name}": value for name, value in _KEEPALIVES.items()},
    "tcp_user_timeout": DEAD_SECONDS * 1000,
    "client_encoding": "utf8",
    "application_name": "orchestrator",
}
#: A site may require more than `on`: that a replica has the commit too.
_DURABLE_COMMIT = (
    "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
    "WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)"
)


class PostgresqlDatabase(database.Database):
    """The tables in one schema of one database of a server."""

    def __init__(self, url: sa.URL, *, migrations: upgrades.Migrations = upgrades.SHIPPED) -> None:
        """Take postgresql://USER@HOST/DATABASE; libpq has defaults for what it lacks."""
        query = {name: value for name, value in url.query.items() if name != "options"}
        our_options = " ".join(f"-c {name}={value}" for name, value in _SERVER_SETTINGS.items())
        options = url.query.get("options", "")
        options = options if isinstance(options, str) else " ".join(options)
        super().__init__(
            url.set(drivername="postgresql+psycopg", query=query),
            shown_name=database.without_secrets(url),
            driver_error=psycopg.Error,
            migrations=migrations,
            # A connection that the server dropped meanwhile is replaced before it is used.
            pool_pre_ping=True,
            # Saves a query at the first connection.
            use_native_hstore=False,
            connect_args={
                **{name: value for name, value in _CLIENT_SETTINGS.items() if name not in query},
                "options": f"{our_options} {options}".strip(),
                # psycopg begins no transaction by itself.
                "autocommit": True,
            },
        )

    def exists(self) -> bool:
        return True

    def _begin(self, mode: Mode) -> Iterator[str]:
        if mode is Mode.READ:
            yield "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            return
        # With the lock taken first, each statement sees all that other writers committed.
        statements = [
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_WRITER_SECONDS}s'",
            "SET LOCAL synchronous_commit = off" if mode is Mode.WRITE else _DURABLE_COMMIT,
        ]
        if mode is Mode.UPGRADE:
            lock_timeout = f"{database.UPGRADE_TIMEOUT_SECONDS:.0f}s"
            statements.append(f"SET LOCAL lock_timeout = '{lock_timeout}'")
            statements.append("SET LOCAL statement_timeout = 0")
        statements.append(f"SELECT pg_advisory_xact_lock({WRITER})")
        yield "; ".join(statements)

    def _upgrade(self) -> tuple[str | None, pathlib.Path | None]:
        with self._connection(Mode.UPGRADE) as connection:
            before = upgrades.read_version(connection, self.shown_name)
            if not upgrades.is_current(before, self._migrations, self.shown_name):
                self._check_server(connection)
                upgrades.migrate(connection, self._migrations)
                # A migration may have stored rows with numbers of its own.
                self._continue_numbering(connection, _highest_numbers(connection))
        return before, None

    def _check_server(self, connection: sa.Connection) -> None:
        name, encoding = connection.execute(
            sa.text("SELECT current_schema(), current_setting('server_encoding')")
        ).one()
        if name is None:
            raise errors.DatabaseError(
                f"{self.shown_name} has none of the schemas in search_path. "
                "Create one: CREATE SCHEMA AUTHORIZATION CURRENT_USER"
            )
        if encoding != "UTF8":
            raise errors.DatabaseError(
                f"{self.shown_name} stores text in {encoding}, which lacks letters of names and "
                "logs. Create the database with: createdb -E UTF8 -T template0 NAME"
            )

    def _last_numbers(self, connection: sa.Connection) -> dict[str, int]:
        numbers = {}
        for table, _, sequence in _sequences(connection):
            last = sa.text(f"SELECT last_value FROM {sequence} WHERE is_called")
            if (number := connection.scalar(last)) is not None:
                numbers[table] = int(number)
        return numbers

    def _continue_numbering(self, connection: sa.Connection, numbers: dict[str, int]) -> None:
        last = self._last_numbers(connection)
        for table, _, sequence in _sequences(connection):
            number = numbers.get(table, 0)
            if number > last.get(table, 0):
                statement = sa.text("SELECT setval(CAST(:sequence AS regclass), :number)")
                connection.execute(statement, {"sequence": sequence, "number": number})

    def _kind(self, connection: sa.Connection) -> str:
        return f"PostgreSQL {connection.scalar(sa.text('SHOW server_version'))}"

    def _own_findings(self, connection: sa.Connection) -> Iterator[checks.Finding]:
        invalid = connection.execute(
            sa.text(
                "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
                "WHERE NOT i.indisvalid AND c.relnamespace = CAST(current_schema() AS regnamespace)"
            )
        )
        for (name,) in invalid:
            yield checks.Finding(problem=f"the index {name} is invalid: REINDEX INDEX {name}")
        last = self._last_numbers(connection)
        for table, number in _highest_numbers(connection).items():
            if number > last.get(table, 0):
                problem = f"row numbers would be assigned twice: the sequence is below {number}"
                yield checks.Finding(table=table, problem=problem)

    def restore_advice(self) -> str:
        return "pg_restore, or `orchestrator db copy` from a backup, restores it."

    def restore(self, backup: pathlib.Path, row_checks: checks.RowChecks) -> pathlib.Path | None:
        raise errors.DatabaseError(
            f"{self.shown_name} is restored on the server: pg_restore reads what pg_dump wrote. "
            "Copy a backup of `orchestrator db backup` into an empty database with "
            "`ORCHESTRATOR_DATABASE=sqlite:////BACKUP orchestrator db copy --to URL`."
        )

    def _backup(self, target: pathlib.Path) -> None:
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target))
        with SqliteDatabase(target) as file:
            try:
                self.copy_to(file)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
            finally:
                # A backup is one file.
                target.with_name(f"{target.name}.lock").unlink(missing_ok=True)

    def _translate(self, error: Exception) -> errors.DatabaseError:
        return error_messages.translate(error, self.shown_name)


def _sequences(connection: sa.Connection) -> list[tuple[str, str, str]]:
    """Return the columns that number rows, each as (table, column, sequence)."""
    rows = connection.execute(
        sa.text(
            "SELECT table_name, column_name, "
            "pg_get_serial_sequence(quote_ident(table_name), column_name) "
            "FROM information_schema.columns WHERE table_schema = current_schema() "
            "AND column_default LIKE 'nextval(%' ORDER BY table_name"
        )
    )
    return [(table, f'"{column}"', sequence) for table, column, sequence in rows]


def _highest_numbers(connection: sa.Connection) -> dict[str, int]:
    """Return the highest row number in each table that has rows."""
    numbers = {}
    for table, column, _ in _sequences(connection):
        if (number := connection.scalar(sa.text(f"SELECT max({column}) FROM {table}"))) is not None:
            numbers[table] = int(number)
    return numbers
