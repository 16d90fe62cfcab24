"""What a transaction is worked in: SQLAlchemy's session, begun late, and statements beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import exc, orm
from sqlalchemy.dialects import sqlite

#: Option of a connection: what its transactions are for.
MODE = "orchestrator_mode"
#: Values by their names, for a text that is compiled once.
_DIALECT = sqlite.dialect(paramstyle="named")


class Session(orm.Session):
    """A session of the ORM that also runs single statements, of an insert or an update."""

    def run(self, statement: sa.Insert | sa.Update, values: Mapping[str, Any]) -> int:
        """Return the number that an insert returns, or how many rows an update changed.

        The values are those of columns and parameters by their names.
        """
        found = self.connection().execute(statement, values)
        # SQLAlchemy lets PostgreSQL return the new key by itself, and has read it then.
        row = found.first() if found.returns_rows else None
        return found.rowcount if row is None else int(row[0])


class Statement:
    """An insert or an update for SQLite's own driver, with values of these names."""

    def __init__(self, statement: sa.Insert | sa.Update, names: list[str]) -> None:
        compiled = statement.compile(dialect=_DIALECT, column_keys=names)
        self._text = str(compiled)
        self._constants = dict(compiled.params)
        self._processors: dict[str, Callable[[Any], Any]] = {}
        for name, bind in compiled.binds.items():
            processor = bind.type.dialect_impl(_DIALECT).bind_processor(_DIALECT)
            if processor is not None:
                self._processors[name] = processor

    def run(self, driver: sqlite3.Connection, values: Mapping[str, Any]) -> int:
        """Return what Session.run does; raises what SQLAlchemy does where a row is refused."""
        bound = {**self._constants, **values}
        for name, processor in self._processors.items():
            bound[name] = processor(bound[name])
        try:
            cursor = driver.execute(self._text, bound)
            row = cursor.fetchone()
        except sqlite3.IntegrityError as error:
            raise exc.IntegrityError(self._text, bound, error) from error
        cursor.close()
        return cursor.rowcount if row is None else int(row[0])


class FileSession(Session):
    """One on SQLite, of which SQLAlchemy hears when it is needed for more than run().

    Of the 2.9 ms that the two transactions of a submission take in a process that has waited for
    sbatch meanwhile (caches are cold), 1.5 ms are SQLAlchemy's connection, its transaction and five
    statements (docs/measured.md).
    """

    def __init__(
        self,
        engine: sa.Engine,
        connection: sa.PoolProxiedConnection,
        mode: object,
        statements: dict[tuple[object, ...], Statement],
    ) -> None:
        """Take a connection on which this transaction begins, and the statements known so far."""
        # expire_on_commit would read every record again after the commit.
        super().__init__(expire_on_commit=False, join_transaction_mode="control_fully")
        self._engine = engine
        self._connection = connection
        self._mode = mode
        self._statements = statements
        self._known: sa.Connection | None = None

    @property
    def driver(self) -> sqlite3.Connection:
        """Return the driver's connection."""
        return cast("sqlite3.Connection", self._connection.driver_connection)

    def run(self, statement: sa.Insert | sa.Update, values: Mapping[str, Any]) -> int:
        if not self.driver.in_transaction or self.in_nested_transaction():
            # Rolled back, or within a savepoint: SQLAlchemy knows what may be done then.
            return super().run(statement, values)
        key = (statement, *values)
        found = self._statements.get(key)
        if found is None:
            found = self._statements[key] = Statement(statement, [*values])
        return found.run(self.driver, values)

    def get_bind(self, *arguments: Any, **options: Any) -> sa.Connection:
        """Return the connection as SQLAlchemy knows it, from now on with its transaction."""
        if self._known is None:
            self._known = sa.Connection(self._engine, connection=self._connection)
            if self.driver.in_transaction:
                # It has begun; another one, after a rollback, has not.
                self._known.execution_options(**{MODE: None}).begin()
            self._known.execution_options(**{MODE: self._mode})
        return self._known

    def commit(self) -> None:
        """Commit, with what the ORM still holds back."""
        self.flush()
        if self._known is not None:
            super().commit()
        if self.driver.in_transaction:
            # SQLAlchemy's connection may be known and its transaction never have been joined.
            self.driver.commit()

    def rollback(self) -> None:
        """Roll back, also what SQLAlchemy has not heard of."""
        super().rollback()
        self.driver.rollback()
