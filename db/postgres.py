"""The database on a PostgreSQL server, for several controllers on several hosts.

Whatever becomes of a client or of the network between, its lock is free after DEAD_SECONDS, and
neither side waits longer for the other.
"""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import psycopg
import sqlalchemy as sa

from db import contents, errors, postgres_errors, schema, session, sqlite

#: A peer that is silent for so long is dead: by keep-alives where nothing is on its way, else by
#: what was sent and not acknowledged (tcp(7), TCP_USER_TIMEOUT).
DEAD_SECONDS = 15
CONNECT_TIMEOUT_SECONDS = 10
#: A writer that stops in mid-work (SIGSTOP, a cut network) must not hold up all others.
_IDLE_WRITER_SECONDS = 20
_STATEMENT_SECONDS = 600
#: Of the lock that each writer takes first; any number will do that others do not take.
WRITER = 0x6F726368
_KEEPALIVES = {"idle": 5, "interval": 5, "count": 2}
#: What the server is asked to keep to in each session of ours. Times are read back in UTC.
_SETTINGS = {
    "TimeZone": "UTC",
    "lock_timeout": f"{session.BUSY_TIMEOUT_SECONDS:.0f}s",
    "statement_timeout": f"{_STATEMENT_SECONDS}s",
    "tcp_user_timeout": f"{DEAD_SECONDS}s",
    **{f"tcp_keepalives_{name}": str(value) for name, value in _KEEPALIVES.items()},
}
#: The same for this side, in libpq's words; milliseconds there.
_CONNECTION: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "keepalives": 1,
    **{f"keepalives_{name}": value for name, value in _KEEPALIVES.items()},
    "tcp_user_timeout": DEAD_SECONDS * 1000,
    "client_encoding": "utf8",
    "application_name": "orchestrator",
}
#: A site may ask for more than `on`: that a replica has it too.
_DURABLY = (
    "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
    "WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)"
)


class Database(session.Database):
    """The tables in one schema of one database of a server."""

    def __init__(self, url: sa.URL, *, migrations: schema.Migrations = schema.SHIPPED) -> None:
        """Take postgresql://USER@HOST/DATABASE; what it lacks libpq takes from its own places."""
        given = {name: value for name, value in url.query.items() if name != "options"}
        own = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        theirs = url.query.get("options", "")
        asked = theirs if isinstance(theirs, str) else " ".join(theirs)
        super().__init__(
            url.set(drivername="postgresql+psycopg", query=given),
            place=session.shown(url),
            driver_error=psycopg.Error,
            migrations=migrations,
            # A connection that the server dropped meanwhile is replaced before it is used.
            pool_pre_ping=True,
            # Each looks up at its first connection what we have no use for.
            use_native_hstore=False,
            connect_args={
                **{name: value for name, value in _CONNECTION.items() if name not in given},
                "options": f"{own} {asked}".strip(),
                # psycopg begins no transaction of its own.
                "autocommit": True,
            },
        )

    def exists(self) -> bool:
        return True

    def _begin(self, mode: session.Mode) -> Iterator[str]:
        if mode is session.Mode.READ:
            yield "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            return
        # With the lock taken first, each statement sees all that other writers committed.
        words = ["BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"]
        words.append(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_WRITER_SECONDS}s'")
        if mode is session.Mode.WRITE:
            words.append("SET LOCAL synchronous_commit = off")
        else:
            words.append(_DURABLY)
        if mode is session.Mode.UPGRADE:
            words.append(f"SET LOCAL lock_timeout = '{session.UPGRADE_TIMEOUT_SECONDS:.0f}s'")
            words.append("SET LOCAL statement_timeout = 0")
        words.append(f"SELECT pg_advisory_xact_lock({WRITER})")
        yield "; ".join(words)

    def _prepare(self) -> None:
        if self._ready:
            return
        if not self._is_current():
            self._upgrade()
        self._ready = True

    def _is_current(self) -> bool:
        with self._connection(session.Mode.READ) as connection:
            version = schema.read_version(connection, self.place)
        return schema.check_version(version, self._migrations, self.place)

    def _upgrade(self) -> tuple[str | None, pathlib.Path | None]:
        with self._connection(session.Mode.UPGRADE) as connection, connection.begin():
            before = schema.read_version(connection, self.place)
            if not schema.check_version(before, self._migrations, self.place):
                self._check_server(connection)
                schema.migrate(connection, self._migrations)
                # A migration may have stored rows with the numbers that they had.
                self._go_on_from(connection, _highest_numbers(connection))
        return before, None

    def _check_server(self, connection: sa.Connection) -> None:
        place, encoding = connection.execute(
            sa.text("SELECT current_schema(), current_setting('server_encoding')")
        ).one()
        if place is None:
            raise errors.StoreError(
                f"{self.place} has none of the schemas that search_path names. "
                "Make one: CREATE SCHEMA AUTHORIZATION CURRENT_USER"
            )
        if encoding != "UTF8":
            raise errors.StoreError(
                f"{self.place} keeps its text in {encoding}, which lacks letters that names and "
                "logs have. Make the database with: createdb -E UTF8 -T template0 NAME"
            )

    def _last_numbers(self, connection: sa.Connection) -> dict[str, int]:
        found = {}
        for table, _, sequence in _numbered(connection):
            last = sa.text(f"SELECT last_value FROM {sequence} WHERE is_called")
            number = connection.scalar(last)
            if number is not None:
                found[table] = int(number)
        return found

    def _go_on_from(self, connection: sa.Connection, numbers: dict[str, int]) -> None:
        known = self._last_numbers(connection)
        for table, _, sequence in _numbered(connection):
            number = numbers.get(table, 0)
            if number > known.get(table, 0):
                words = sa.text("SELECT setval(CAST(:sequence AS regclass), :number)")
                connection.execute(words, {"sequence": sequence, "number": number})

    def _keeping(self, connection: sa.Connection) -> str:
        return f"PostgreSQL {connection.scalar(sa.text('SHOW server_version'))}"

    def _complaints(self, connection: sa.Connection) -> Iterator[contents.Finding]:
        found = connection.execute(
            sa.text(
                "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
                "WHERE NOT i.indisvalid AND c.relnamespace = CAST(current_schema() AS regnamespace)"
            )
        )
        for (name,) in found:
            yield contents.Finding(problem=f"the index {name} is not whole: REINDEX INDEX {name}")
        last = self._last_numbers(connection)
        for table, number in _highest_numbers(connection).items():
            if number > last.get(table, 0):
                yield contents.Finding(
                    table=table,
                    problem=f"numbers would be given twice: they count behind {number}",
                )

    def damaged(self) -> str:
        return (
            f"The database {self.place} is damaged. `orchestrator db check` lists what is damaged; "
            "pg_restore, or `orchestrator db copy` from a backup, puts a backup in its place."
        )

    def restore(
        self, backup: pathlib.Path, checks: contents.Checks
    ) -> tuple[pathlib.Path | None, str | None]:
        raise errors.StoreError(
            f"{self.place} is restored on the server: pg_restore puts back what pg_dump wrote. "
            "What `orchestrator db backup` wrote is copied into an empty database by "
            "`ORCHESTRATOR_DATABASE=sqlite:////BACKUP orchestrator db copy --to URL`."
        )

    def _backup(self, target: pathlib.Path) -> None:
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target))
        with sqlite.Database(target) as file:
            try:
                self.copy_to(file)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
            finally:
                # Of its making; a backup is one file.
                target.with_name(f"{target.name}.lock").unlink(missing_ok=True)

    def _translate(self, error: Exception) -> errors.StoreError:
        return postgres_errors.translate(error, self.place)


def _numbered(connection: sa.Connection) -> list[tuple[str, str, str]]:
    """Return the columns that number rows, each as (table, column, sequence)."""
    found = connection.execute(
        sa.text(
            "SELECT table_name, column_name, "
            "pg_get_serial_sequence(quote_ident(table_name), column_name) "
            "FROM information_schema.columns WHERE table_schema = current_schema() "
            "AND column_default LIKE 'nextval(%' ORDER BY table_name"
        )
    )
    return [(row[0], f'"{row[1]}"', row[2]) for row in found]


def _highest_numbers(connection: sa.Connection) -> dict[str, int]:
    """Return by table the highest number that a row has."""
    found = {}
    for table, column, _ in _numbered(connection):
        number = connection.scalar(sa.text(f"SELECT max({column}) FROM {table}"))
        if number is not None:
            found[table] = int(number)
    return found
