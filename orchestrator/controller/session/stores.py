"""The user's database: its location, and transactions on it."""

from __future__ import annotations

import contextlib
import copy
import datetime
import itertools
import os
import pathlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

import sqlalchemy as sa
from sqlalchemy import exc

from db import database, unit_of_work
from db.sqlite.database import SqliteDatabase
from orchestrator import config, errors, files

if TYPE_CHECKING:
    from db import checks
    from db.sqlite.backups import Backup

_URLS = "Write sqlite:////PATH or postgresql://USER@HOST/DATABASE."
#: what code may raise when it meets an impossible stored value
_WRONG_VALUE_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError),
    *(TypeError, ValueError, exc.SQLAlchemyError),
)
MAX_FINDINGS = 1000
#: time limit of the search for a damaged row
_SEARCH_SECONDS = 4.0


class Store:
    """The user's database, opened at its first use. Close it, or use it in a `with`.

    All methods raise errors.DatabaseError and its subclasses.
    """

    def __init__(
        self,
        location: str | pathlib.Path,
        *,
        shared_folders: Sequence[pathlib.Path] = (),
        setting: str = "state_dir",
    ) -> None:
        """Take a database URL (sqlite:///PATH, postgresql://...) or the path of an SQLite file.

        A file that other users can change is refused, except below `shared_folders`. setting: the
        configuration key with its folder, for error messages.
        """
        self._database = _database(location)
        self._fence: int | None = None
        self._joining: Callable[[unit_of_work.UnitOfWork], None] | None = None
        #: the open transaction of each thread
        self._transaction = threading.local()
        self._shared_folders = tuple(shared_folders)
        self._setting = setting
        self._is_folder_checked = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def fenced(self, fence: int) -> Store:
        """Return the same store for the controller whose lease has this number.

        Its write transactions raise FencedError after another controller has taken the lease.
        """
        store = copy.copy(self)
        store._fence = fence
        return store

    @property
    def shown_name(self) -> str:
        """The file, or the server's URL without a password."""
        return self._database.shown_name

    @property
    def restore_advice(self) -> str:
        return self._database.restore_advice()

    @property
    def file(self) -> pathlib.Path | None:
        """The database file; None: the database is on a server."""
        return self._database.path if isinstance(self._database, SqliteDatabase) else None

    def exists(self) -> bool:
        return self._database.exists()

    @contextlib.contextmanager
    def reading(self) -> Iterator[unit_of_work.UnitOfWork]:
        """Open a read transaction; inside another transaction of this thread, use that one."""
        if (work := getattr(self._transaction, "work", None)) is not None:
            with self._database.plain_errors():
                yield work
            return
        with self._open().reading() as connection, self._as_transaction(connection) as work:
            yield work

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[unit_of_work.UnitOfWork]:
        """Open the only write transaction; it is committed at the end, or dropped on an error.

        durable: what is committed survives a power cut.
        """
        opened = self._open()
        with (
            opened.writing(durable=durable) as connection,
            self._as_transaction(connection) as work,
        ):
            if self._fence is not None and not work.leases.has_fence(self._fence):
                from orchestrator.jobs import leases

                raise leases.taken_over(work.leases.read(datetime.datetime.now(datetime.UTC)))
            joining = self._joining if durable else None
            if joining is not None:
                joining(work)
            yield work
        if joining is not None:
            self._joining = None

    def join_next_durable(self, joining: Callable[[unit_of_work.UnitOfWork], None]) -> None:
        """Call `joining` in the next durable write transaction, until one of them is committed."""
        self._joining = joining

    @property
    def has_joined(self) -> bool:
        """Whether what join_next_durable() took is committed."""
        return self._joining is None

    @contextlib.contextmanager
    def _as_transaction(self, connection: sa.Connection) -> Iterator[unit_of_work.UnitOfWork]:
        outer = getattr(self._transaction, "work", None)
        self._transaction.work = unit_of_work.UnitOfWork(connection)
        try:
            yield self._transaction.work
        finally:
            self._transaction.work = outer

    def version(self) -> str | None:
        """Return the schema revision of the database; None: there is no database."""
        return self._open().version()

    def check(self) -> list[checks.Finding]:
        """Return the problems of the database, at most MAX_FINDINGS."""
        return list(itertools.islice(self._open().findings(_row_checks()), MAX_FINDINGS))

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turn an error that a damaged row causes into a DamagedRowError.

        Values are checked when they are read. A missing or contradicting row shows later, anywhere,
        so the database is searched after an error that may come from one.
        """
        try:
            yield
        except _WRONG_VALUE_ERRORS as error:
            finding = None
            with contextlib.suppress(errors.DatabaseError):
                finding = self._database.first_finding(_row_checks(), seconds=_SEARCH_SECONDS)
            if finding is None:
                raise
            raise errors.DamagedRowError(f"{finding}. {self._database.damaged()}") from error

    def backups(self) -> list[Backup]:
        """Return the backups beside the database file, newest first."""
        from db.sqlite import backups

        return [] if self.file is None else backups.find(self.file)

    def restore(self, backup: pathlib.Path) -> pathlib.Path | None:
        """Replace the database file with a checked backup; return where the old file is kept.

        Raises ConflictError while another process has the database open.
        """
        if self.file is not None and backup.resolve() == self.file.resolve():
            raise errors.ConflictError(f"{backup} is the database itself; name a backup of it")
        try:
            return self._open().restore(backup, _row_checks())
        except errors.DatabaseLockedError as error:
            raise errors.ConflictError(str(error)) from error

    def describe(self) -> str:
        """Return how the database is stored, as one line."""
        return self._open().describe()

    def backup(self, target: pathlib.Path | None) -> pathlib.Path:
        """Copy the database, also while it is in use, to a new file (None: beside it).

        Returns the new file.
        """
        if target is None:
            from db.sqlite import backups

            if self.file is None:
                raise errors.ConflictError(
                    f"{self.shown_name} is on a server: name the file for the backup"
                )
            target = backups.new_path(self.file, self.version() or "0000")
        try:
            self._open().backup(target)
        except FileExistsError as error:
            raise errors.ConflictError(f"{target} exists; name a new file.") from error
        return target

    def copy_to(self, location: str | pathlib.Path) -> int:
        with Store(location, shared_folders=self._shared_folders, setting="--to") as target:
            return self._open().copy_to(target._open())

    def upgrade(self) -> tuple[str | None, str | None, pathlib.Path | None]:
        """Upgrade the tables to this version, and keep a copy of an older database beside it.

        Returns the schema revisions before (None: there was no database) and after, and the copy.
        """
        opened = self._open()
        before, backup = opened.upgrade()
        return before, opened.version(), backup

    def _open(self) -> database.Database:
        """Return the database, whose folder is checked at the first use."""
        if not self._is_folder_checked and self.file is not None:
            self._check_folder(self.file.absolute())
        self._is_folder_checked = True
        return self._database

    def _check_folder(self, path: pathlib.Path) -> None:
        """Create the folder of the database file; refuse one that other users can change."""
        try:
            files.make_private_folder(
                path.parent, shared_folders=self._shared_folders, setting=self._setting
            )
            # The mode of an own file is tightened when it is opened.
            is_own = path.is_file() and path.lstat().st_uid == os.geteuid()
            if path.is_symlink() or not is_own:
                if exposure := files.exposure(path, shared_folders=self._shared_folders):
                    raise errors.DatabaseError(exposure.refusal(path, self._setting))
        except files.PrivateFolderError as error:
            raise errors.DatabaseError(str(error.strerror)) from error
        except OSError as error:
            raise errors.DatabaseError(
                f"The folder {path.parent} cannot be created ({error.strerror}). "
                f"Create it, or set {self._setting}."
            ) from error


def of(configuration: config.Configuration) -> Store:
    is_default = configuration.database == f"sqlite:///{configuration.state_dir}/orchestrator.db"
    return Store(
        configuration.database,
        shared_folders=configuration.shared_folders,
        setting="state_dir" if is_default else "database",
    )


def _row_checks() -> checks.RowChecks:
    from orchestrator.controller.session import content_checks

    return content_checks.checks(datetime.datetime.now(datetime.UTC))


def _database(location: str | pathlib.Path) -> database.Database:
    """Return the database of a URL or a path, not opened yet; raises DatabaseError."""
    if isinstance(location, pathlib.Path):
        return SqliteDatabase(location)
    try:
        url = sa.make_url(location)
    except (exc.ArgumentError, ValueError):
        # Text that is no URL may contain a password anywhere.
        is_plain = re.fullmatch(r"[\w./-]+", location)
        name = repr(location) if is_plain else "The value of `database`"
        raise errors.DatabaseError(f"{name} is not a database URL. {_URLS}") from None
    if url.get_backend_name() == "sqlite" and url.database and not url.query:
        return SqliteDatabase(pathlib.Path(url.database))
    # SQLAlchemy ends the password at the first @ and takes the rest for the host.
    if location.count("@") > 1 or "@" in (url.database or ""):
        raise errors.DatabaseError(
            f"{config.without_password(location)} has an @ or a / in its user, its password or an "
            "option: write them as %40 and %2F."
        )
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        try:
            from db.postgresql.database import PostgresqlDatabase
        except ImportError as error:
            raise errors.DatabaseError(
                f"PostgreSQL needs psycopg, which is not installed ({error}). "
                "Install it: pip install 'psycopg[binary]>=3.2'"
            ) from error
        return PostgresqlDatabase(url)
    name = database.without_secrets(url)
    raise errors.DatabaseError(f"The database {name} cannot be used. {_URLS}")
