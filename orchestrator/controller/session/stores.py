"""The database of one user: where it lies, and the transactions on it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import itertools
import os
import pathlib
import re
import threading
import types
from collections.abc import Iterator, Sequence
from typing import Self

import sqlalchemy as sa
from sqlalchemy import exc

from db import checks, database, unit_of_work
from db import errors as db_errors
from db.sqlite import backups
from db.sqlite.database import SqliteDatabase
from orchestrator import config, errors, files
from orchestrator.controller.session import content_checks

_URLS = "Write sqlite:////PATH or postgresql://USER@HOST/DATABASE."
#: What code raises that meets a value which cannot be.
_OF_WRONG_VALUES = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError),
    *(TypeError, ValueError, exc.SQLAlchemyError),
)
#: More are not listed.
MOST_FINDINGS = 1000
#: A damaged row is looked for so long.
_SEARCH_SECONDS = 4.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restored:
    """What a restored backup took the place of."""

    #: the database as it was; none: there was no file
    kept: pathlib.Path | None
    #: revision of the backup's tables, before they were brought to ours
    version: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Upgrade:
    """What an upgrade of the tables did."""

    #: revision before; none: there was no database
    before: str | None
    #: revision now
    after: str | None
    #: copy of the database as it was
    backup: pathlib.Path | None


class Store:
    """The database of one user, opened at its first use. Close it, or use it in a `with`."""

    def __init__(
        self,
        location: str | pathlib.Path,
        *,
        shared_folders: Sequence[pathlib.Path] = (),
        setting: str = "state_dir",
    ) -> None:
        """Take a database URL (sqlite:///PATH, postgresql://...) or the path of an SQLite file.

        A file that other users can change is not opened, but for those of `shared_folders`.
        setting: which key of the configuration names its folder, for the error's advice.
        """
        self._database = _database(location)
        self._fence: int | None = None
        #: the open transaction of each thread
        self._open = threading.local()
        self._shared_folders = tuple(shared_folders)
        self._setting = setting
        self._is_checked = False

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
        self._database.close()

    def fenced(self, fence: int) -> Store:
        """Return the same store for the controller whose lease has this number.

        Where another one has taken the lease over, its write transactions raise FencedError.
        """
        store = copy.copy(self)
        store._fence = fence
        return store

    @property
    def place(self) -> str:
        """Return the file, or the server's URL without a password: for people."""
        return self._database.shown_name

    @property
    def damaged(self) -> str:
        """Return that the database is damaged, and the way back."""
        return self._database.damaged()

    @property
    def file(self) -> pathlib.Path | None:
        """Return the database file; none: it is on a server."""
        return self._database.path if isinstance(self._database, SqliteDatabase) else None

    def exists(self) -> bool:
        """Return whether there may be something to read, without making it."""
        return self._database.exists()

    @contextlib.contextmanager
    def reading(self) -> Iterator[unit_of_work.UnitOfWork]:
        """Yield a view of one moment; inside another transaction of this thread, yield that one."""
        if (work := getattr(self._open, "work", None)) is not None:
            yield work
            return
        with _translated(), self._private().reading() as connection:
            with self._opened(unit_of_work.UnitOfWork(connection)) as work:
                yield work

    @contextlib.contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[unit_of_work.UnitOfWork]:
        """Yield the only writer; commit at the end, nothing on an error.

        With `durable` what was committed survives a power cut: for intents.
        """
        with (
            _translated(),
            self._private().writing(durable=durable) as connection,
            self._opened(unit_of_work.UnitOfWork(connection)) as work,
        ):
            if self._fence is not None and not work.leases.has_fence(self._fence):
                from orchestrator.controller.service import lease_messages

                raise lease_messages.taken_over(
                    work.leases.read(datetime.datetime.now(datetime.UTC))
                )
            yield work

    @contextlib.contextmanager
    def _opened(self, work: unit_of_work.UnitOfWork) -> Iterator[unit_of_work.UnitOfWork]:
        outer = getattr(self._open, "work", None)
        self._open.work = work
        try:
            yield work
        finally:
            self._open.work = outer

    def version(self) -> str | None:
        """Return the revision of the tables as it is."""
        with _translated():
            return self._private().version()

    def check(self) -> list[checks.Finding]:
        """Return what is wrong with the database, up to MOST_FINDINGS; an empty list is good."""
        with _translated():
            findings = self._private().findings(_checks())
            return list(itertools.islice(findings, MOST_FINDINGS))

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raise DamagedRowError for an error that comes of what is stored, where a row is damaged.

        Values are looked at when they are read; what is missing, or contradicts another row, is
        met later, anywhere. Where nothing stored is damaged the error is one of the program, and
        stays what it is.
        """
        try:
            yield
        except _OF_WRONG_VALUES as error:
            finding = None
            with contextlib.suppress(db_errors.StoreError):
                finding = self._database.first_finding(_checks(), seconds=_SEARCH_SECONDS)
            if finding is None:
                raise
            raise errors.DamagedRowError(f"{finding}. {self._database.damaged()}") from error

    def backups(self) -> list[backups.Backup]:
        """Return the backups beside the database file, newest first; of a server there are none."""
        return [] if self.file is None else backups.find(self.file)

    def restore(self, backup: pathlib.Path) -> Restored:
        """Put a checked backup in place of the database file, and keep the old one beside it.

        ConflictError while another process has the database open.
        """
        if self.file is not None and backup.resolve() == self.file.resolve():
            raise errors.ConflictError(f"{backup} is the database itself; name a backup of it")
        try:
            with _translated():
                kept, version = self._private().restore(backup, _checks())
        except errors.DatabaseError as error:
            if isinstance(error.__cause__, db_errors.LockedError):
                raise errors.ConflictError(str(error)) from error
            raise
        return Restored(kept=kept, version=version)

    def describe(self) -> str:
        """Return one line on how the file is kept, for people."""
        with _translated():
            return self._private().describe()

    def backup(self, target: pathlib.Path | None) -> pathlib.Path:
        """Copy the database, also while it is in use, to a new file; none: beside it.

        Returns the file.
        """
        if target is None:
            if self.file is None:
                raise errors.ConflictError(
                    f"{self.place} is on a server: name the file that the backup is written to"
                )
            target = backups.new_path(self.file, self.version() or "0000")
        try:
            with _translated():
                self._private().backup(target)
        except FileExistsError as error:
            raise errors.ConflictError(f"{target} exists; name a new file.") from error
        except OSError as error:
            raise errors.DatabaseError(f"{target}: {error.strerror}.") from error
        return target

    def copy_to(self, location: str | pathlib.Path) -> int:
        """Store all that is here in another, empty database; return how many rows."""
        with Store(location, shared_folders=self._shared_folders, setting="--to") as other:
            with _translated():
                return self._private().copy_to(other._private())

    def upgrade(self) -> Upgrade:
        """Bring the tables to this version; a copy of an older database is kept beside it."""
        with _translated():
            before, backup = self._private().upgrade()
            return Upgrade(before=before, after=self._database.version(), backup=backup)

    def _private(self) -> database.Database:
        """Return the database, whose folder is made where it is missing; raises DatabaseError."""
        if not self._is_checked and isinstance(self._database, SqliteDatabase):
            path = self._database.path.absolute()
            try:
                files.make_private_folder(
                    path.parent, shared_folders=self._shared_folders, setting=self._setting
                )
                # The mode of a file of the user's own is tightened when it is opened.
                is_own = path.is_file() and path.lstat().st_uid == os.geteuid()
                found = None
                if path.is_symlink() or not is_own:
                    found = files.exposure(path, shared_folders=self._shared_folders)
            except files.PrivateFolderError as error:
                raise errors.DatabaseError(str(error.strerror)) from error
            except OSError as error:
                raise errors.DatabaseError(
                    f"The folder {path.parent} cannot be made ({error.strerror}). "
                    f"Make it, or set {self._setting}."
                ) from error
            if found is not None:
                raise errors.DatabaseError(found.refusal(path, self._setting))
        self._is_checked = True
        return self._database


def of(configuration: config.Configuration) -> Store:
    """Return the store that a configuration names."""
    is_default = configuration.database == f"sqlite:///{configuration.state_dir}/orchestrator.db"
    return Store(
        configuration.database,
        shared_folders=configuration.shared_folders,
        setting="state_dir" if is_default else "database",
    )


def _checks() -> checks.RowChecks:
    return content_checks.checks(datetime.datetime.now(datetime.UTC))


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except db_errors.NewerSchemaError as error:
        raise errors.NewerDatabaseError(str(error)) from error
    except db_errors.NotEmptyError as error:
        raise errors.ConflictError(f"{error} Name an empty database.") from error
    except (db_errors.DamagedRowError, db_errors.DamagedValueError) as error:
        raise errors.DamagedRowError(str(error)) from error
    except db_errors.StoreError as error:
        raise errors.DatabaseError(str(error)) from error
    except exc.IntegrityError as error:
        told = str(error.orig).partition("\n")[0]
        raise errors.DatabaseError(f"The database refused a change: {told}.") from error
    except FileExistsError:
        raise
    except OSError as error:
        # Of the file and its lock; nothing else is read or written inside a transaction.
        raise errors.DatabaseError(
            f"{error.filename or 'The database'} cannot be used ({error.strerror}). "
            "Make it writable, or set state_dir to another folder."
        ) from error


def _database(location: str | pathlib.Path) -> database.Database:
    """Return the database that a URL or a path names, unopened; raises DatabaseError."""
    if isinstance(location, pathlib.Path):
        return SqliteDatabase(location)
    try:
        url = sa.make_url(location)
    except (exc.ArgumentError, ValueError):
        # What cannot be read may hold a password anywhere.
        plain = re.fullmatch(r"[\w./-]+", location)
        told = repr(location) if plain else "The value of `database`"
        raise errors.DatabaseError(f"{told} is no database URL. {_URLS}") from None
    if url.get_backend_name() == "sqlite" and url.database and not url.query:
        return SqliteDatabase(pathlib.Path(url.database))
    # SQLAlchemy ends a password at its first @, and would take the rest for the host.
    if location.count("@") > 1 or "@" in (url.database or ""):
        raise errors.DatabaseError(
            f"{config.without_password(location)} has an @ or a / in its user, its password or an "
            "option: write %40 and %2F."
        )
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return _on_server(url)
    told = database.without_secrets(url)
    raise errors.DatabaseError(f"The database {told} cannot be used. {_URLS}")


def _on_server(url: sa.URL) -> database.Database:
    try:
        from db.postgresql.database import PostgresqlDatabase
    except ImportError as error:
        raise errors.DatabaseError(
            f"PostgreSQL needs psycopg, which is not installed here ({error}). "
            "Install it: pip install 'orchestrator[postgres]'"
        ) from error
    return PostgresqlDatabase(url)
